// A RunStatus as text and JSON, and a text that is drawn again and again in one place.
#pragma once

#include <ostream>
#include <string>

#include "cli/status/run_status.h"

namespace lockstep::cli {

// The header line, one line a rank, one a node where there are several, then what concerns the run
// as a whole. Ends with a newline.
std::string status_text(const RunStatus& status);
// The same facts; on one line where `compact`. No newline at the end.
std::string status_json(const RunStatus& status, bool compact);

// On a terminal each text replaces the one before, in one write and without clearing first, so
// that nothing flickers; elsewhere texts follow each other. Borrows the stream.
class LiveText {
 public:
  // The terminal's size; 0: no terminal.
  struct Size {
    int rows = 0, columns = 0;
  };
  explicit LiveText(std::ostream& out) : out_(out) {}
  // What does not fit is cut: lines at the right edge, the text before its last lines.
  void show(const std::string& text, Size size);

 private:
  std::ostream& out_;
  int shown_lines_ = 0;
};

}  // namespace lockstep::cli
