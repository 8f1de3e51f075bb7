// What Debian 12's headers and archives take from its glibc and glibc 2.31 has not: for programs
// that are linked against that one (CMakeLists.txt). No library sees these.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>

#define LOCKSTEP_HIDDEN [[gnu::visibility("hidden")]]

extern "C" {

// Whether a process has one thread, so that counts of references need no atomic operation: "no" is
// always right.
LOCKSTEP_HIDDEN char __libc_single_threaded = 0;

// For std::random_device.
LOCKSTEP_HIDDEN uint32_t arc4random() noexcept {
  uint32_t value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value) std::abort();
  return value;
}

// "KILL" for SIGKILL; nullptr for a number that is no signal's or a real-time signal's.
LOCKSTEP_HIDDEN const char* sigabbrev_np(int signal) noexcept {
  static constexpr const char* kNames[] = {
      nullptr, "HUP",  "INT",  "QUIT", "ILL",    "TRAP",   "ABRT",  "BUS",  "FPE",  "KILL", "USR1",
      "SEGV",  "USR2", "PIPE", "ALRM", "TERM",   "STKFLT", "CHLD",  "CONT", "STOP", "TSTP", "TTIN",
      "TTOU",  "URG",  "XCPU", "XFSZ", "VTALRM", "PROF",   "WINCH", "POLL", "PWR",  "SYS"};
  return signal >= 0 && signal < static_cast<int>(std::size(kNames)) ? kNames[signal] : nullptr;
}

}  // extern "C"
