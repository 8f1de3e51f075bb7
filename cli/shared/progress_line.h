// One line about a long command on stderr: rewritten in place on a terminal, a new one every few
// seconds elsewhere, nothing when the command is over before that.
//
//   reshard: [===========>        ]  56.1 %, 1024.0 of 1825.2 MB, 412.3 MB/s, ETA 0:00:01
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "base/clock.h"

namespace lockstep::cli {

// Borrows clock and stream.
class ProgressLine {
 public:
  ProgressLine(std::string what, Clock& clock, std::ostream& err, bool terminal);
  // On the process's stderr and clock.
  explicit ProgressLine(std::string what);
  ~ProgressLine() { end(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(int64_t done_bytes, int64_t total_bytes);
  // Leaves the cursor on a line of its own.
  void end();

 private:
  const std::string what_;
  Clock& clock_;
  std::ostream& err_;
  const bool terminal_;
  const double start_s_;
  double shown_s_;
  bool shown_ = false, open_ = false;
};

}  // namespace lockstep::cli
