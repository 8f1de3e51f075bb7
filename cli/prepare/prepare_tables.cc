#include "cli/prepare/prepare_tables.h"

#include <algorithm>
#include <string>

#include "base/log.h"
#include "base/text.h"
#include "cli/shared/python_tools.h"
#include "data/prepare/text_reader.h"
#include "launcher/host/pipe.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

bool is_table(const fs::path& path) {
  return path.extension() == ".parquet" || path.extension() == ".arrow";
}

// Of a chat all columns: its conversation has one of several names.
std::vector<std::string> column_words(const data::RecordFormat& records) {
  if (!records.text_field.empty()) return {"--columns", records.text_field};
  if (!records.chat_template.empty()) return {};
  return {"--columns", records.prompt_field + "," + records.response_field};
}

}  // namespace

bool has_tables(const fs::path& input) {
  const auto documents = data::list_documents(posix_file_system(), {input});
  return documents.ok() &&
         std::any_of(documents.value().begin(), documents.value().end(),
                     [](const data::Document& each) { return is_table(each.path); });
}

namespace {

// The converter reads a folder's tables alone.
void warn_of_others(const fs::path& input) {
  const auto documents = data::list_documents(posix_file_system(), {input});
  if (!documents.ok()) return;
  for (const data::Document& each : documents.value())
    if (!is_table(each.path))
      log_warning(
          each.path.string(),
          " is skipped: in a folder with tables (.parquet, .arrow) only the tables are read; "
          "give this file as an input of its own if it is text");
}

}  // namespace

Result<std::vector<fs::path>> with_tables_as_lines(std::vector<fs::path> inputs,
                                                   const std::optional<data::RecordFormat>& records,
                                                   const fs::path& scratch) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!has_tables(inputs[i])) continue;
    warn_of_others(inputs[i]);
    if (!records)
      return Error{Code::kConfig,
                   text(inputs[i].string(),
                        " has tables, so name the column that is the text: give "
                        "--text-field, --prompt-field with --response-field, or --chat-template")};
    LOCKSTEP_TRY(const fs::path script, tool_script("to_jsonl"));
    LOCKSTEP_TRY(const fs::path python, python_program());
    const fs::path lines = scratch / text(i, ".jsonl");
    std::vector<std::string> words{script.string(), "--out", lines.string()};
    for (std::string& word : column_words(*records)) words.push_back(std::move(word));
    words.insert(words.end(), {"--", inputs[i].string()});
    LOCKSTEP_TRY(const launcher::ProgramOutput output, launcher::run_program(python, words, ""));
    if (output.exit_status != 0)
      return Error{Code::kConfig, text(inputs[i].string(), ": tools/to_jsonl ended with status ",
                                       output.exit_status, "; its errors are above")};
    inputs[i] = lines;
  }
  return inputs;
}

}  // namespace lockstep::cli
