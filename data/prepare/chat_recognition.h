// Which chat template a Hugging Face folder means: its own is a program in Jinja, which is not run
// here, but known by its text.
//
// A text is a family's when it has all signs by which the published ones are told apart, and no
// special token that the family does not write. Another default system message, or other tokens,
// are another template. What chat_template_in_jinja wrote is known whole.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::data {

// The name of the family (data/prepare/chat_template.h). Errors: kConfig, none that is known; it
// says which one comes near.
Result<std::string> recognised_chat_template(std::string_view jinja);

struct FolderTemplate {
  std::filesystem::path file;  // that it stands in
  std::string jinja;
};
// chat_template.jinja, or "chat_template" of tokenizer_config.json or chat_template.json (of
// several the one named "default"), in the order in which transformers looks.
// Errors: kNotFound, there is none; kConfig, a damaged file; kIo.
Result<FolderTemplate> chat_template_of_folder(FileSystem& file_system,
                                               const std::filesystem::path& folder);

// `name`, or where it is "auto" the family of the template beside the tokenizer at `tokenizer`, a
// file or a folder. Errors: kConfig, none is there, or none that is known, naming the file and what
// to do; chat_template_of_folder's.
Result<std::string> resolved_chat_template(FileSystem& file_system, const std::string& name,
                                           const std::string& tokenizer);

}  // namespace lockstep::data
