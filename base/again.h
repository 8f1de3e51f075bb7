// Reads that may fail for a moment: a file server that restarts, a path that is failed over.
#pragma once

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"

namespace lockstep {
inline namespace base {

// What `call` returns, which is called again after 0.5, 2 and 8 s while it fails with kIo: the
// operating system refused a read. What it read and found wrong is not tried again.
template <typename Call>
auto again_while_refused(Clock& clock, Call call) -> decltype(call()) {
  for (const int64_t wait_ms : {500, 2'000, 8'000}) {
    auto result = call();
    if (result.ok() || result.error().code != Code::kIo) return result;
    log_warning(result.error().message, "; trying again in ", static_cast<double>(wait_ms) * 1e-3,
                " s");
    clock.sleep_ns(wait_ms * 1'000'000);
  }
  return call();
}

}  // namespace base
}  // namespace lockstep
