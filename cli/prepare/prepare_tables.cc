#include "cli/prepare/prepare_tables.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "cli/shared/python_tools.h"
#include "data/prepare/record_keys.h"
#include "data/prepare/text_reader.h"
#include "launcher/host/pipe.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

bool is_table(const fs::path& path) {
  return path.extension() == ".parquet" || path.extension() == ".arrow";
}

// The columns that nobody needs, with commas between. What is not known is read, so that it is
// seen.
std::string skipped_columns(const data::RecordFormat& records) {
  const auto place = !records.text_field.empty()      ? data::KeyPlace::kText
                     : !records.chat_template.empty() ? data::KeyPlace::kChat
                                                      : data::KeyPlace::kPair;
  std::vector<std::string> keys = data::inert_keys(place);
  keys.insert(keys.end(), records.ignored_keys.begin(), records.ignored_keys.end());
  std::string all;
  for (const std::string& key : keys)
    if (key != records.text_field && key != records.prompt_field && key != records.response_field &&
        key.find(',') == key.npos)
      all += (all.empty() ? "" : ",") + key;
  return all;
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

// The tables whose rows follow each other in a file of lines.
struct Origin {
  int64_t rows;
  std::string table;
};
using Origins = std::map<fs::path, std::vector<Origin>>;  // by the file of lines

Result<std::vector<Origin>> read_origins(const fs::path& path) {
  LOCKSTEP_TRY(const std::string words, read_file(posix_file_system(), path));
  std::vector<Origin> origins;
  for (const std::string& line : split(words, '\n')) {
    const size_t tab = line.find('\t');
    if (tab != line.npos)
      origins.push_back({std::stoll(line.substr(0, tab)), line.substr(tab + 1)});
  }
  return origins;
}

std::optional<std::string> origin_of(const Origins& origins, const fs::path& path, int64_t line) {
  const auto found = origins.find(path);
  if (found == origins.end()) return std::nullopt;
  for (const Origin& each : found->second) {
    if (line <= each.rows) return text(each.table, ": row ", line);
    line -= each.rows;
  }
  return std::nullopt;
}

// Writes the rows of `input` to `lines`, and where they are from to `origins`.
Result<void> convert(const fs::path& input, const data::RecordFormat& records,
                     const fs::path& lines, const fs::path& origins) {
  LOCKSTEP_TRY(const fs::path script, tool_script("to_jsonl"));
  LOCKSTEP_TRY(const fs::path python, python_program());
  LOCKSTEP_TRY(const launcher::ProgramOutput output,
               launcher::run_program(
                   python,
                   {script.string(), "--out", lines.string(), "--origins", origins.string(),
                    "--skip-columns", skipped_columns(records), "--", input.string()},
                   ""));
  if (output.exit_status == 0) return {};
  return Error{Code::kConfig, text(input.string(), ": tools/to_jsonl ended with status ",
                                   output.exit_status, "; its errors are above")};
}

}  // namespace

Result<void> tables_become_lines(data::PrepareOptions& options, const fs::path& scratch) {
  Origins origins;
  for (size_t i = 0; i < options.inputs.size(); ++i) {
    fs::path& input = options.inputs[i];
    if (!has_tables(input)) continue;
    warn_of_others(input);
    if (!options.records)
      return Error{Code::kConfig,
                   text(input.string(),
                        " has tables, so name the column that is the text: give "
                        "--text-field, --prompt-field with --response-field, or --chat-template")};
    const fs::path lines = scratch / text(i, ".jsonl"), rows = scratch / text(i, ".rows");
    LOCKSTEP_RETURN_IF_ERROR(convert(input, *options.records, lines, rows));
    LOCKSTEP_TRY(origins[lines], read_origins(rows));
    input = lines;
  }
  options.origin = [origins = std::move(origins)](const fs::path& path, int64_t line) {
    return origin_of(origins, path, line);
  };
  return {};
}

}  // namespace lockstep::cli
