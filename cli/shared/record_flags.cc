#include "cli/shared/record_flags.h"

#include "base/file_system.h"
#include "base/log.h"
#include "data/prepare/chat_recognition.h"
#include "data/prepare/chat_template.h"

namespace lockstep::cli {

void add_record_flags(CLI::App& app, data::RecordFormat& records) {
  app.add_option("--text-field", records.text_field, "JSON lines: this field is the text")
      ->type_name("NAME");
  app.add_option("--prompt-field", records.prompt_field,
                 "JSON lines: this field is given, without loss")
      ->type_name("NAME");
  app.add_option("--response-field", records.response_field,
                 "JSON lines: this field counts in the loss")
      ->type_name("NAME");
  app.add_option("--chat-template", records.chat_template,
                 "JSON lines with \"messages\": " + data::ChatTemplate::known_names() +
                     ", or auto: the template in the tokenizer's folder")
      ->type_name("NAME");
}

Result<std::optional<data::RecordFormat>> record_format(data::RecordFormat records,
                                                        const std::string& tokenizer) {
  const bool pair = !records.prompt_field.empty() || !records.response_field.empty();
  const int kinds = pair + !records.text_field.empty() + !records.chat_template.empty();
  if (kinds == 0) return std::optional<data::RecordFormat>();
  if (kinds > 1 || (pair && (records.prompt_field.empty() || records.response_field.empty())))
    return Error{Code::kConfig,
                 "give one of --text-field, --chat-template, or --prompt-field and "
                 "--response-field together"};
  const std::string asked = records.chat_template;
  LOCKSTEP_TRY(records.chat_template,
               data::resolved_chat_template(posix_file_system(), asked, tokenizer));
  if (asked != records.chat_template) log_info("chat template: ", records.chat_template);
  return std::optional(std::move(records));
}

}  // namespace lockstep::cli
