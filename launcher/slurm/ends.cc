#include "launcher/slurm/ends.h"

#include "base/json.h"
#include "launcher/control/incident.h"

namespace lockstep::launcher::slurm {
namespace {

constexpr const char* kEndsFile = "slurm_end.json";

}  // namespace

std::optional<int> read_end(FileSystem& file_system, const std::filesystem::path& run_folder,
                            const std::string& launch) {
  const auto contents = read_file(file_system, run_folder / kEndsFile);
  if (!contents) return std::nullopt;
  try {
    const auto json = parse_json(contents.value());
    if (json.at("launch") == launch) return json.at("exit_status").get<int>();
  } catch (const nlohmann::json::exception&) {  // not written by us: nothing was said
  }
  return std::nullopt;
}

Result<void> write_end(FileSystem& file_system, const std::filesystem::path& run_folder,
                       const std::string& launch, int exit_status) {
  if (read_end(file_system, run_folder, launch) == kExitDone) return {};
  const nlohmann::ordered_json json{{"launch", launch}, {"exit_status", exit_status}};
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(run_folder));
  return publish_file(file_system, run_folder / kEndsFile, json.dump(1) + "\n");
}

}  // namespace lockstep::launcher::slurm
