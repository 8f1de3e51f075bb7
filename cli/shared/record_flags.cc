#include "cli/shared/record_flags.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/file_system.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/shared/jinja_python.h"
#include "data/prepare/chat_probe.h"
#include "data/prepare/chat_template.h"

namespace lockstep::cli {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kNeededKeys[] = {"role", "content", "from", "value"};

}  // namespace

void add_chat_date_flag(CLI::App& app, std::string& date) {
  app.add_option("--chat-date", date,
                 "The date of today for a chat template in the tokenizer's folder that writes it")
      ->type_name("YYYY-MM-DD")
      ->check([](const std::string& given) -> std::string {
        int year = 0, month = 0, day = 0;
        const bool fits = given.size() == 10 &&
                          std::sscanf(given.c_str(), "%4d-%2d-%2d", &year, &month, &day) == 3;
        const std::chrono::year_month_day named{std::chrono::year(year),
                                                std::chrono::month(static_cast<unsigned>(month)),
                                                std::chrono::day(static_cast<unsigned>(day))};
        return fits && year > 0 && named.ok() ? "" : given + " is not a date like 2026-01-31";
      });
}

void add_record_flags(CLI::App& app, RecordFlags& flags) {
  data::RecordFormat& records = flags.records;
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
  add_chat_date_flag(app, flags.chat_date);
  app.add_option_function<std::vector<std::string>>(
         "--ignore-key",
         [&records](const std::vector<std::string>& keys) {
           records.ignored_keys.insert(keys.begin(), keys.end());
         },
         "Records: this key of a record or a turn is passed over; can be given several times")
      ->type_name("KEY")
      ->allow_extra_args(false);
}

Result<std::optional<data::RecordFormat>> record_format(const RecordFlags& flags,
                                                        const std::string& tokenizer) {
  const data::RecordFormat& records = flags.records;
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
  if (records.chat_template == kAuto && (tokenizer == "byte" || tokenizer.empty()))
    return Error{Code::kConfig, text("--chat-template auto takes the template of the tokenizer's "
                                     "folder, but this tokenizer has none; give one of ",
                                     data::ChatTemplate::known_names())};
  return std::optional(records);
}

Result<void> find_template(std::optional<data::RecordFormat>& records, const std::string& chat_date,
                           const std::string& path, const data::Tokenizer& tokenizer,
                           std::vector<std::pair<std::string, std::string>>& files) {
  if (!records || records->chat_template != kAuto) return {};
  LOCKSTEP_TRY(
      const data::FoundTemplate found,
      data::find_chat_template(posix_file_system(), path, tokenizer, chat_date, jinja_python()));
  records->chat_template = found.name;
  records->jinja = found.jinja;
  log_info("the chat template of ", found.file.string(),
           found.by_jinja() ? " is rendered by Jinja" : " renders as " + found.name);
  if (!found.by_jinja()) return {};
  files.emplace_back(data::kTemplateFile, found.jinja->source().jinja);
  for (const char* const name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const auto file = found.file.parent_path() / name;
    const bool there = std::any_of(files.begin(), files.end(),
                                   [&](const auto& each) { return each.first == name; });
    if (there || !posix_file_system().exists(file)) continue;
    LOCKSTEP_TRY(std::string contents, read_file(posix_file_system(), file));
    files.emplace_back(name, std::move(contents));
  }
  return {};
}

}  // namespace lockstep::cli
