#include "cli/run_args.h"

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace lockstep::cli {

Result<std::vector<std::string>> run_flags(FileSystem& file_system,
                                           const std::filesystem::path& run) {
  const std::filesystem::path path = run / "run_args.json";
  auto contents = read_file(file_system, path);
  if (!contents.ok())
    return Error{contents.error().code, text(contents.error().message, "; a run's folder has one")};
  const auto args = nlohmann::json::parse(*contents, nullptr, false);
  if (!args.is_object() || !args.contains("config"))
    return Error{Code::kCorrupt, text(path.string(), " is not a run's run_args.json")};
  std::vector<std::string> flags;
  for (const auto& [section, keys] : args["config"].items())
    for (const auto& [key, value] : keys.items()) {
      if (value.is_array() || (section == "job" && key == "dump_folder")) continue;
      flags.push_back(text("--", section, ".", key, "=",
                           value.is_string() ? value.get<std::string>() : value.dump()));
    }
  flags.push_back("--job.dump_folder=" + run.string());
  return flags;
}

}  // namespace lockstep::cli
