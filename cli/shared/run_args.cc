#include "cli/shared/run_args.h"

#include "base/json.h"
#include "base/text.h"
#include "cli/shared/json_fields.h"
#include "config/config.h"

namespace lockstep::cli {

namespace {

using nlohmann::json;

Result<json> read_args(FileSystem& file_system, const std::filesystem::path& run) {
  const std::filesystem::path path = run / "run_args.json";
  auto contents = read_file(file_system, path);
  if (!contents.ok())
    return Error{contents.error().code,
                 text(contents.error().message, "; give the folder of a run")};
  const auto args = parse_json(*contents, /*allow_exceptions=*/false);
  if (!args.is_object() || !args.contains("config"))
    return Error{Code::kCorrupt, text(path.string(), " is malformed: it has no config")};
  return args;
}

}  // namespace

Result<std::filesystem::path> data_path_of_run(FileSystem& file_system,
                                               const std::filesystem::path& run) {
  LOCKSTEP_TRY(const json args, read_args(file_system, run));
  const json& config = args["config"];
  json path = config.value("/data/path"_json_pointer, json());
  if (path == "") path = config.value("/data/sources/0"_json_pointer, json());  // of a mixture
  if (!path.is_string())
    return Error{Code::kCorrupt, text(run.string(), ": run_args.json names no data")};
  return std::filesystem::path(path.get<std::string>());
}

Result<std::vector<std::string>> run_flags(FileSystem& file_system,
                                           const std::filesystem::path& run) {
  LOCKSTEP_TRY(const json args, read_args(file_system, run));
  const json& config = args["config"];
  std::vector<std::string> flags;
  for (const auto& [section, keys] : config.items())
    for (const auto& [key, value] : keys.items()) {
      if (section == "job" && key == "dump_folder") continue;
      if (retired_key(section + "." + key) != nullptr) continue;  // of an older version's run
      const auto word = [](const json& v) {
        return v.is_string() ? v.get<std::string>() : v.dump();
      };
      flags.push_back(text("--", section, ".", key, "=", word(value)));  // a list has brackets
    }
  flags.push_back("--job.dump_folder=" + run.string());
  return flags;
}

std::vector<std::string> identity_of_run(FileSystem& file_system,
                                         const std::filesystem::path& run) {
  const auto args = read_args(file_system, run);
  return args.ok() ? strings_of(args.value(), "identity") : std::vector<std::string>();
}

std::vector<std::string> trained_units_of_run(FileSystem& file_system,
                                              const std::filesystem::path& run) {
  const auto args = read_args(file_system, run);
  return args.ok() ? strings_of(args.value(), "trained_units") : std::vector<std::string>();
}

std::string transport_of_run(FileSystem& file_system, const std::filesystem::path& run) {
  const auto args = read_args(file_system, run);
  return args.ok() ? string_or_empty(args.value(), "transport") : "";
}

bool run_has_finished(FileSystem& file_system, const std::filesystem::path& run) {
  const auto contents = read_file(file_system, run / "metrics.json");
  const json totals = parse_json(contents.ok() ? contents.value() : "", /*allow_exceptions=*/false);
  return totals.is_object() && totals.value("finished", json()) == true;
}

}  // namespace lockstep::cli
