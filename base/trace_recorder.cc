#include "base/trace_recorder.h"

#include <utility>

#include "base/json.h"
#include "base/text.h"

namespace lockstep {
inline namespace base {
namespace {

using nlohmann::ordered_json;

// The format's unit.
double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000.0; }

}  // namespace

void TraceRecorder::add(const char* phase, std::string_view part, int64_t start_ns,
                        int64_t end_ns) {
  spans_.push_back({phase, std::string(part), start_ns, end_ns});
}

Result<void> TraceRecorder::publish(FileSystem& file_system, const std::filesystem::path& path) {
  // "X": a span with its duration. "M": what a process is called.
  ordered_json events = ordered_json::array();
  events.push_back({{"name", "process_name"},
                    {"ph", "M"},
                    {"pid", rank_},
                    {"args", {{"name", text("rank ", rank_)}}}});
  for (const Span& span : std::exchange(spans_, {})) {
    const std::string name = span.part.empty() ? span.phase : text(span.phase, " ", span.part);
    events.push_back({{"name", name},
                      {"cat", span.phase},
                      {"ph", "X"},
                      {"ts", microseconds(span.start_ns)},
                      {"dur", microseconds(span.end_ns - span.start_ns)},
                      {"pid", rank_},
                      {"tid", 0}});
  }
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(path.parent_path()));
  const ordered_json trace{{"traceEvents", events}, {"displayTimeUnit", "ms"}};
  return publish_file(file_system, path, trace.dump() + "\n");
}

}  // namespace base
}  // namespace lockstep
