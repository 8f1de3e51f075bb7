// An agent in a process of its own.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "base/clock.h"
#include "launcher/agent/agent.h"

namespace lockstep::test_support {

// Its process id. What it prints goes to the end of `console`.
inline pid_t fork_agent(FileSystem& fs, const launcher::AgentOptions& options,
                        const std::filesystem::path& console) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const int out = ::open(console.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  ::_exit(launcher::run_agent(fs, system_clock(), options).exit_status);
}

}  // namespace lockstep::test_support
