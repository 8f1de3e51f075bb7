// Lines about rejected connections, so few that nobody can fill the disk with them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/log.h"
#include "base/text.h"

namespace lockstep::launcher::net {

class RejectLog {
 public:
  static constexpr int64_t kWindowNs = 10'000'000'000;
  RejectLog(int max_lines, std::function<void(const std::string&)> sink)
      : max_lines_(max_lines), sink_(std::move(sink)) {
    if (!sink_) sink_ = [](const std::string& line) { log_warning(line); };
  }

  void add(const std::string& line, int64_t now_ns) {
    if (now_ns - window_start_ns_ >= kWindowNs) {
      if (left_out_ > 0) sink_(text(left_out_, " more connections were rejected meanwhile"));
      window_start_ns_ = now_ns;
      lines_ = 0;
      left_out_ = 0;
    }
    if (lines_ < max_lines_)
      sink_(line);
    else
      ++left_out_;
    ++lines_;
  }

 private:
  const int max_lines_;
  std::function<void(const std::string&)> sink_;
  int64_t window_start_ns_ = -kWindowNs;
  int lines_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace lockstep::launcher::net
