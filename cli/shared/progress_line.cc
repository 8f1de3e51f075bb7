#include "cli/shared/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <iomanip>
#include <iostream>

#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr int kBarCells = 20;
constexpr double kTerminalInterval_s = 0.2, kLogInterval_s = 5.0;

std::string megabytes(int64_t bytes) { return fixed(static_cast<double>(bytes) * 1e-6, 1); }

std::string bar(double share) {
  const int filled = static_cast<int>(share * kBarCells);
  std::string cells(static_cast<size_t>(filled), '=');
  if (filled < kBarCells) cells += '>';
  cells.resize(kBarCells, ' ');
  return "[" + cells + "]";
}

}  // namespace

ProgressLine::ProgressLine(std::string what, Clock& clock, std::ostream& err, bool terminal)
    : what_(std::move(what)),
      clock_(clock),
      err_(err),
      terminal_(terminal),
      start_s_(clock.monotonic_s()),
      shown_s_(start_s_) {}

ProgressLine::ProgressLine(std::string what)
    : ProgressLine(std::move(what), system_clock(), std::cerr, isatty(STDERR_FILENO) == 1) {}

void ProgressLine::show(int64_t done_bytes, int64_t total_bytes) {
  const double now_s = clock_.monotonic_s();
  const bool last = done_bytes >= total_bytes && (terminal_ || shown_);
  if (!last && now_s - shown_s_ < (terminal_ ? kTerminalInterval_s : kLogInterval_s)) return;
  shown_s_ = now_s;
  shown_ = true;
  const double rate = static_cast<double>(done_bytes) / std::max(now_s - start_s_, 1e-6);
  const double left_s = static_cast<double>(total_bytes - done_bytes) / std::max(rate, 1.0);
  const double share =
      static_cast<double>(done_bytes) / static_cast<double>(std::max<int64_t>(1, total_bytes));
  err_ << (terminal_ ? "\r" : "") << what_ << ": " << (terminal_ ? bar(share) + " " : "")
       << std::setw(5) << fixed(100 * share, 1) << " %, " << megabytes(done_bytes) << " of "
       << megabytes(total_bytes) << " MB, " << fixed(rate * 1e-6, 1) << " MB/s, ETA "
       << duration_text(left_s) << (terminal_ ? "  " : "\n") << std::flush;
  open_ = terminal_;
}

void ProgressLine::end() {
  if (open_) err_ << "\n" << std::flush;
  open_ = false;
}

}  // namespace lockstep::cli
