#include "base/check.h"

#include <cstdlib>

#include "base/log.h"
#include "base/task_thread.h"

namespace lockstep {
inline namespace base {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  log_line(Level::kError, text("CHECK failed at ", file, ":", line, ": ", condition,
                               values.empty() ? "" : ": ", values));
  finish_task_threads();
  std::abort();
}

}  // namespace base
}  // namespace lockstep
