#include "launcher/agent/find_rendezvous.h"

#include <string>

#include "base/log.h"
#include "base/text.h"

namespace lockstep::launcher {

Result<control::Rendezvous> find_rendezvous(FileSystem& file_system, Clock& clock,
                                            const NodesOptions& nodes,
                                            const std::filesystem::path& folder,
                                            StopSignals& signals) {
  constexpr int64_t kPauseMs = 1000;
  const auto deadline_ns = clock.monotonic_ns() + static_cast<int64_t>(nodes.join_s * 1e9);
  for (bool said = false;; said = true) {
    auto found = control::Rendezvous::create(file_system, nodes.endpoint, nodes.job, folder);
    // A folder that cannot be made now will not be made later; a host's name may become known.
    const bool is_host = !nodes.endpoint.empty() && !nodes.endpoint.starts_with("file:");
    if (found || !is_host || found.error().code != Code::kNotFound) return found;
    const std::string why = found.error().message;
    if (clock.monotonic_ns() >= deadline_ns)
      return Error{Code::kConfig,
                   text(why, ", after ", nodes.join_s, " s (launcher.join_seconds)")};
    if (!said) log_warning(why, "; it is tried again for ", nodes.join_s, " s");
    wait_readable({signals.descriptor()}, kPauseMs);
    if (!signals.take().empty())
      return Error{Code::kAborted, text(why, "; it was asked to stop, so it is not tried again")};
  }
}

}  // namespace lockstep::launcher
