// Processes, thinly: starting a worker that cannot outlive its agent, noticing its death within
// milliseconds, and waiting for deaths and signals in one poll().
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/result.h"

namespace lockstep::launcher {

struct ExitStatus {
  int exit_code = 0;
  int signal = 0;  // != 0: killed by it
};

// One child process, in a session of its own (a Ctrl-C at the terminal does not reach it), which
// the kernel kills when the thread that spawned it ends. USR1 and USR2 start out ignored: Slurm
// sends them to every process of a step, and they are the agent's to act on. HUP, INT, QUIT and
// ALRM stay ignored where this process ignores them. Every other signal has its default.
// Owns the child: destruction kills and reaps it. Thread: the one that spawned it, which must live
// as long as the child shall.
class WorkerProcess {
 public:
  struct Options {
    std::filesystem::path program;
    std::vector<std::string> arguments;  // after the program's name
    Environment environment;             // all of it
    std::filesystem::path stderr_path;   // appended to; made when missing
    std::filesystem::path stdout_path;   // likewise; may be the same
  };
  // Returns once the program runs. Errors: kIo (files, processes), kNotFound (no such program).
  static Result<WorkerProcess> spawn(const Options& options);

  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&& other) noexcept;
  ~WorkerProcess();

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_; }  // readable when the child has ended
  void signal(int signal) const;        // to the child alone
  void kill_all() const;                // SIGKILL to it and its children
  bool stopped() const;                 // SIGSTOP and the like, by no debugger
  // Reaps it, and kills what is left of its children, if it has ended. Requires: not reaped.
  std::optional<ExitStatus> try_reap();
  bool reaped() const { return pid_ < 0; }

 private:
  WorkerProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}
  void close_pidfd();
  pid_t pid_;
  int pidfd_;
};

// Signals that ask the agent to stop (TERM, INT, HUP, USR1, USR2) as something to poll for. While
// it lives they are blocked in this thread; a signal that is ignored (nohup) stays so. QUIT and
// ALRM keep their default: they end the program at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int descriptor() const { return descriptor_; }
  std::vector<int> take();  // those that arrived; never blocks

 private:
  int descriptor_;
  struct Saved;
  Saved* saved_;
};

// From here on those signals reach a StopSignals alone, until the program has ended: one that comes
// in its last moments, when none is left, does not change the exit status. For this thread, and
// those that it starts.
void hold_stop_signals();

// Waits until a descriptor is readable or `timeout_ms` has passed; a signal may end it early.
void wait_readable(const std::vector<int>& descriptors, int64_t timeout_ms);

// Orphans of a worker become our children, not init's. reap_orphans() reaps those that have ended;
// `own`: the pids that WorkerProcess objects wait for.
void become_subreaper();
void reap_orphans(const std::vector<pid_t>& own);

// Writes to standard output as much as fits without waiting; -1 when nobody reads it any more.
int64_t write_console(std::string_view bytes);
// Appends in one write, atomically beside other writers of the same file. False when it cannot.
bool append_file(const std::filesystem::path& path, std::string_view bytes);
bool is_alive(pid_t pid);
bool is_stopped(pid_t pid);         // SIGSTOP, or under a debugger
bool runs_same_program(pid_t pid);  // as this process; false when it is gone
// When a process began, in ns since 1970, exact to a second; nothing when it is gone.
std::optional<int64_t> started_unix_ns(pid_t pid);
// Replaces this program. Returns only on failure: kNotFound, kIo.
Error exec_program(const WorkerProcess::Options& options);
std::filesystem::path running_executable();

}  // namespace lockstep::launcher
