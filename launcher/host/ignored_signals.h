// Signals that this program was started with as ignored stay ignored: by nohup, by a shell that
// puts it into the background, by `trap '' INT`. The kernel keeps an ignored signal that is blocked
// for the one that waits for it, so that a program which waits for signals must leave it out.
#pragma once

#include <csignal>
#include <initializer_list>

namespace lockstep::launcher {

inline bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// Those of `signals` that this process does not ignore.
inline sigset_t not_ignored(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals)
    if (!is_ignored(signal)) sigaddset(&set, signal);
  return set;
}

}  // namespace lockstep::launcher
