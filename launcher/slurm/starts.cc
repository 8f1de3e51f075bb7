#include "launcher/slurm/starts.h"
#include "base/json.h"

namespace lockstep::launcher::slurm {
namespace {

constexpr const char* kStartsFile = "slurm_starts.json";

}  // namespace

Starts count_start(const Starts& before, const std::string& job, int64_t restart,
                   int64_t committed_step) {
  if (before.job == job && before.restart == restart) return before;
  Starts starts{job, restart, 1, committed_step};
  if (before.job == job && committed_step <= before.committed_step) starts.count = before.count + 1;
  return starts;
}

bool may_start(const Starts& starts) { return starts.count <= kMaxStarts; }

bool may_start_again(const Starts& starts, int64_t committed_step) {
  return committed_step > starts.committed_step || starts.count < kMaxStarts;
}

Starts read_starts(FileSystem& file_system, const std::filesystem::path& run_folder) {
  Starts starts;
  const auto contents = read_file(file_system, run_folder / kStartsFile);
  if (!contents) return starts;
  try {
    const auto json = parse_json(contents.value());
    starts = {json.at("job"), json.at("restart"), json.at("count"), json.at("committed_step")};
  } catch (const nlohmann::json::exception&) {  // written by hand; counting starts anew
  }
  return starts;
}

Result<void> write_starts(FileSystem& file_system, const std::filesystem::path& run_folder,
                          const Starts& starts) {
  const nlohmann::ordered_json json{{"job", starts.job},
                                    {"restart", starts.restart},
                                    {"count", starts.count},
                                    {"committed_step", starts.committed_step}};
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(run_folder));
  return publish_file(file_system, run_folder / kStartsFile, json.dump(1) + "\n");
}

}  // namespace lockstep::launcher::slurm
