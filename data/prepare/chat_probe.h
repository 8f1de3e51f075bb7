// Which of the families of data/prepare/chat_families.h writes what a folder's chat template
// writes. A template is known by what it renders for a set of probe conversations: system messages,
// several turns, blanks and line ends around contents, empty contents, thoughts, tools with calls
// and answers, prompts.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/file_system.h"
#include "base/result.h"
#include "data/prepare/jinja_template.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep::data {

struct FoundTemplate {
  std::string name;  // the family's, or JinjaTemplate::name()
  // Renders what the family does not take. Null where the template is a text of Lockstep's own
  // (data/prepare/chat_jinja.h), which takes no more than the family.
  std::shared_ptr<const JinjaTemplate> jinja;
  std::filesystem::path file = {};  // that the template stands in

  bool by_jinja() const { return jinja != nullptr && name == jinja->name(); }
};

// The family serves if it gives the ids of the template's text for each probe that it takes, and
// the template takes each of these. A template with {% generation %} blocks is no family's.
// Errors: kBug, kConfig: the Python answers nothing.
Result<FoundTemplate> template_of(std::shared_ptr<const JinjaTemplate> jinja,
                                  const Tokenizer& tokenizer);

// The template in the folder of a tokenizer. `path` is the folder, or a file in it; `date` and
// `start` are those of JinjaTemplate::create. Errors: kConfig, the folder has no template; the
// errors of chat_template_of_folder and of JinjaTemplate::create.
Result<FoundTemplate> find_chat_template(FileSystem& file_system, const std::filesystem::path& path,
                                         const Tokenizer& tokenizer, const std::string& date,
                                         const PythonStarter& start);

}  // namespace lockstep::data
