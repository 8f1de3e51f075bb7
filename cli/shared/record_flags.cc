#include "cli/shared/record_flags.h"

#include "base/file_system.h"
#include "base/log.h"
#include "data/prepare/chat_recognition.h"
#include "data/prepare/chat_template.h"

namespace lockstep::cli {
namespace {

constexpr const char* kNeededKeys[] = {"role", "content", "from", "value"};

}  // namespace

void add_record_flags(CLI::App& app, data::RecordFormat& records) {
  app.add_option("--text-field", records.text_field,
                 "Records (JSON lines, a JSON array, CSV, TSV, parquet, Arrow): this field is the "
                 "text")
      ->type_name("NAME");
  app.add_option("--prompt-field", records.prompt_field,
                 "Records: this field is given, without loss")
      ->type_name("NAME");
  app.add_option("--response-field", records.response_field, "Records: this field is learnt")
      ->type_name("NAME");
  app.add_option("--chat-template", records.chat_template,
                 "Records with \"messages\": " + data::ChatTemplate::known_names() +
                     ", or auto: the template in the tokenizer's folder")
      ->type_name("NAME");
  app.add_option_function<std::vector<std::string>>(
         "--ignore-key",
         [&records](const std::vector<std::string>& keys) {
           records.ignored_keys.insert(keys.begin(), keys.end());
         },
         "Records: this key of a record or a turn is passed over; can be given several times")
      ->type_name("KEY")
      ->allow_extra_args(false);
}

Result<std::optional<data::RecordFormat>> record_format(data::RecordFormat records,
                                                        const std::string& tokenizer) {
  const bool pair = !records.prompt_field.empty() || !records.response_field.empty();
  const int kinds = pair + !records.text_field.empty() + !records.chat_template.empty();
  if (kinds == 0 && !records.ignored_keys.empty())
    return Error{Code::kConfig,
                 "--ignore-key is for records: say --text-field, --chat-template, or "
                 "--prompt-field and --response-field too"};
  if (kinds == 0) return std::optional<data::RecordFormat>();
  if (kinds > 1 || (pair && (records.prompt_field.empty() || records.response_field.empty())))
    return Error{Code::kConfig,
                 "give one of --text-field, --chat-template, or --prompt-field and "
                 "--response-field together"};
  for (const char* const needed : kNeededKeys)
    if (records.ignored_keys.contains(needed) && !records.chat_template.empty())
      return Error{Code::kConfig, text("--ignore-key ", needed, ": conversations need this key")};
  for (const std::string& field :
       {records.text_field, records.prompt_field, records.response_field})
    if (records.ignored_keys.contains(field))
      return Error{Code::kConfig, text("--ignore-key ", field, ": another flag reads this key")};
  const std::string asked = records.chat_template;
  LOCKSTEP_TRY(records.chat_template,
               data::resolved_chat_template(posix_file_system(), asked, tokenizer));
  if (asked != records.chat_template) log_info("chat template: ", records.chat_template);
  return std::optional(std::move(records));
}

}  // namespace lockstep::cli
