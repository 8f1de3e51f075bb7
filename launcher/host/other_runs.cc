#include "launcher/host/other_runs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "launcher/host/process.h"
#include "launcher/host/run_files.h"

namespace lockstep::launcher {
namespace {

constexpr int64_t kLookNs = 500'000'000;      // between two looks at workers.json
constexpr int64_t kLateNs = 1'500'000'000;    // that a busy coordinator may be
constexpr int64_t kCoarseNs = 2'000'000'000;  // what the times of processes and files may differ by

Error is_trained_by(const std::filesystem::path& dump_folder, const std::string& whom) {
  return {Code::kConfig, text(dump_folder.string(), " is being trained by ", whom,
                              " already (lockstep status); give this run another folder with "
                              "--job.dump_folder")};
}

}  // namespace

Result<void> nobody_else_runs(FileSystem& file_system, Clock& clock,
                              const std::filesystem::path& dump_folder, const std::string& job,
                              int64_t publish_ns) {
  const auto path = dump_folder / "workers.json";
  const auto last = read_membership(file_system, path);
  if (!last || last.value().state != "running") return {};
  if (job.empty()) {
    const pid_t agent = last.value().agent_pid;
    if (agent == ::getpid() || !runs_same_program(agent)) return {};
    // Ids are used again: one that began after the file was written last did not write it.
    const auto written_ns = file_system.written_unix_ns(path);
    const auto started_ns = started_unix_ns(agent);
    if (written_ns && started_ns && *started_ns > written_ns.value() + kCoarseNs) return {};
    return is_trained_by(dump_folder, text("process ", agent));
  }
  if (last.value().job == job) return {};
  const auto before = read_file(file_system, path);
  const auto written = file_system.written_unix_ns(path);
  log_info(path.string(), " says that another job trains in this folder; watching it for ",
           (publish_ns + kLateNs) * 1e-9, " s");
  const int64_t deadline_ns = clock.monotonic_ns() + publish_ns + kLateNs;
  while (before && clock.monotonic_ns() < deadline_ns) {
    clock.sleep_ns(kLookNs);
    const auto now = read_file(file_system, path);
    const auto again = file_system.written_unix_ns(path);
    const bool anew = written && again && again.value() != written.value();  // with the same words
    if (!now || (now.value() == before.value() && !anew)) continue;
    const auto found = read_membership(file_system, path);
    if (!found || found.value().state != "running" || found.value().job == job) return {};
    return is_trained_by(dump_folder, text("job ", found.value().job));
  }
  return {};
}

// The file is this machine's: a lock of a machine that died stays on a network file system until
// its server notices, and must not hold up the run on another one.
Result<FolderClaim> FolderClaim::take(const std::filesystem::path& dump_folder) {
  const auto path = dump_folder / "logs" / text("agent_", host_name(), ".lock");
  FolderClaim claim(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (claim.file_ < 0) return Error{Code::kIo, text(path.string(), ": ", std::strerror(errno))};
  if (::flock(claim.file_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error != EWOULDBLOCK) {
      log_warning(path.string(), ": ", std::strerror(error),
                  ": cannot lock this file, so another run in this folder may be noticed late");
      return claim;
    }
    char pid[16] = {};  // none yet, of one that has just taken it
    const bool said = ::pread(claim.file_, pid, sizeof(pid) - 1, 0) > 0;
    return is_trained_by(dump_folder, said ? text("process ", pid) : "another process");
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(claim.file_, 0) != 0 || ::pwrite(claim.file_, pid.data(), pid.size(), 0) < 0)
    log_info(path.string(), ": ", std::strerror(errno));  // the lock counts, not what it says
  return claim;
}

FolderClaim::~FolderClaim() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace lockstep::launcher
