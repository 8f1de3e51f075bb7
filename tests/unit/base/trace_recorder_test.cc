#include "base/trace_recorder.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

using test_support::TempDir;

class CountedClock : public Clock {
 public:
  int64_t monotonic_ns() override { return now += 1500; }
  int64_t unix_ns() override { return 0; }
  void sleep_ns(int64_t) override {}
  int64_t now = 0;
};

nlohmann::json published(TraceRecorder& trace, const std::filesystem::path& path) {
  EXPECT_TRUE(trace.publish(posix_file_system(), path).ok());
  const auto written = read_file(posix_file_system(), path);
  EXPECT_TRUE(written.ok());
  return nlohmann::json::parse(written.value());
}

TEST(TraceRecorder, ATimerAddsItsSpanAndItsSeconds) {
  TempDir folder;
  CountedClock clock;
  TraceRecorder trace(3);
  double outer_s = 0, inner_s = 0;
  {
    PhaseTimer outer(clock, outer_s, &trace, "step");
    PhaseTimer inner(clock, inner_s, &trace, "forward", "layers.0");
  }
  EXPECT_DOUBLE_EQ(inner_s, 1.5e-6);
  EXPECT_DOUBLE_EQ(outer_s, 4.5e-6);
  const auto events = published(trace, folder / "a" / "b.json")["traceEvents"];
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["args"]["name"], "rank 3");
  EXPECT_EQ(events[1], nlohmann::json::parse(
                           R"({"name": "forward layers.0", "cat": "forward", "ph": "X", "ts": 3.0,
                               "dur": 1.5, "pid": 3, "tid": 0})"));
  EXPECT_EQ(events[2]["name"], "step");
  EXPECT_EQ(events[2]["dur"], 4.5);
}

TEST(TraceRecorder, AFileHasWhatCameAfterTheOneBefore) {
  TempDir folder;
  TraceRecorder trace(0);
  trace.add("update", "", 0, 10);
  EXPECT_EQ(published(trace, folder / "1.json")["traceEvents"].size(), 2u);
  EXPECT_EQ(published(trace, folder / "2.json")["traceEvents"].size(), 1u);
}

TEST(TraceRecorder, WithoutOneATimerOnlyCounts) {
  CountedClock clock;
  double seconds = 1;
  { PhaseTimer timer(clock, seconds, nullptr, "forward"); }
  EXPECT_DOUBLE_EQ(seconds, 1 + 1.5e-6);
}

}  // namespace
}  // namespace lockstep
