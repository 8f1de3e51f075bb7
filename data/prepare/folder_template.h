// The chat template in a tokenizer's folder, as transformers finds it.
#pragma once

#include <filesystem>
#include <string>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::data {

inline constexpr const char* kTemplateFile = "chat_template.jinja";

struct FolderTemplate {
  std::filesystem::path file;  // that it stands in
  std::string jinja;
  std::string tokens;  // a JSON object: what bos_token, eos_token, … are to the template
};

// chat_template.jinja, or "chat_template" of tokenizer_config.json or chat_template.json (of
// several the one named "default"), in the order in which transformers looks. `tokenizer`: the
// folder, or a file in it.
// Errors: kNotFound, the folder has no template; kConfig, a damaged file; kIo.
Result<FolderTemplate> chat_template_of_folder(FileSystem& file_system,
                                               const std::filesystem::path& tokenizer);

}  // namespace lockstep::data
