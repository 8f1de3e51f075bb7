// An agent in a process of its own.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/clock.h"
#include "launcher/agent/agent.h"

namespace lockstep::test_support {

// Its process id. What it prints goes to the end of `console`. It ends with the test, however that
// ends.
inline pid_t fork_agent(FileSystem& fs, const launcher::AgentOptions& options,
                        const std::filesystem::path& console, Clock& clock = system_clock()) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int out = ::open(console.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  ::_exit(launcher::run_agent(fs, clock, options).exit_status);
}

}  // namespace lockstep::test_support
