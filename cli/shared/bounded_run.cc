#include "cli/shared/bounded_run.h"

#include <algorithm>
#include <csignal>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/text.h"
#include "launcher/host/scratch_folder.h"

namespace lockstep::cli {
namespace {

constexpr double kTermSeconds = 5;   // from the request to stop to SIGKILL
constexpr size_t kLastWords = 1500;  // of a program that failed, in bytes

}  // namespace

std::optional<launcher::ExitStatus> wait_for(launcher::WorkerProcess& run, double limit_s) {
  const auto wait = [&](double seconds) {
    const double end = system_clock().monotonic_s() + seconds;
    for (double left = seconds; left > 0; left = end - system_clock().monotonic_s()) {
      if (auto status = run.try_reap()) return status;
      launcher::wait_readable({run.pidfd()}, static_cast<int64_t>(left * 1e3) + 1);
    }
    return run.try_reap();
  };
  if (auto status = wait(limit_s)) return status;
  for (int asked = 0; asked < 2; ++asked) {  // the second time it stops at once
    run.signal(SIGTERM);
    if (wait(kTermSeconds / 2)) return std::nullopt;
  }
  run.kill_all();
  return std::nullopt;
}

Environment plain_environment() {
  Environment environment = own_environment();
  std::erase_if(environment, [](const auto& variable) {
    const std::string& name = variable.first;
    return name.starts_with("SLURM_") || name.starts_with("LOCKSTEP_") || name == "RANK" ||
           name == "WORLD_SIZE" || name == "LOCAL_RANK";
  });
  return environment;
}

Result<std::string> output_of(const std::filesystem::path& program,
                              const std::vector<std::string>& arguments, double limit_s) {
  FileSystem& file_system = posix_file_system();
  LOCKSTEP_TRY(const auto scratch, launcher::ScratchFolder::create());
  const std::filesystem::path& folder = scratch.path();
  launcher::WorkerProcess::Options options{.program = program,
                                           .arguments = arguments,
                                           .environment = plain_environment(),
                                           .stderr_path = folder / "err",
                                           .stdout_path = folder / "out"};
  LOCKSTEP_TRY(auto run, launcher::WorkerProcess::spawn(options));
  const auto status = wait_for(run, limit_s);
  if (!status)
    return Error{Code::kTimeout, text(program.string(), " did not end in ", fixed(limit_s, 0),
                                      " s and was killed")};
  LOCKSTEP_TRY(const std::string out, read_file(file_system, folder / "out"));
  if (status->exit_code == 0 && status->signal == 0) return out;
  LOCKSTEP_TRY(const std::string err, read_file(file_system, folder / "err"));
  const std::string words = err + out;
  return Error{Code::kBug, text(program.string(), " ended with status ", status->exit_code,
                                ", signal ", status->signal, ": ",
                                words.substr(words.size() - std::min(words.size(), kLastWords)))};
}

}  // namespace lockstep::cli
