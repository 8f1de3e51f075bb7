// Restarts, resumes and checkpoints as marks.
#include "cli/serve/run_marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using testing::ElementsAre;

TEST(Events, TheNewestAreKeptAndDamagedLinesCounted) {
  const auto list = parse_events(
      "{\"event\":\"a\"}\nnonsense\n{\"event\":\"b\"}\n[1]\n{\"event\":3}\n{\"event\":\"c\"}\n{"
      "\"ev",
      2);
  ASSERT_EQ(list.events.size(), 2u);
  EXPECT_EQ(list.events[0]["event"], "b");
  EXPECT_EQ(list.events[1]["event"], "c");
  EXPECT_EQ(list.damaged_lines, 4);
}

TEST(Marks, AFailureMakesARestartAndACommandAResume) {
  const auto events = parse_events(
                          R"({"event":"generation_start","generation":0}
{"event":"failure_detected","generation":0,"rank":1,"reason":"killed by SIGKILL"}
{"event":"failure_detected","generation":0,"rank":0,"reason":"lost a peer"}
{"event":"generation_start","generation":1}
{"event":"stop_requested","generation":1,"reason":"SIGTERM"}
{"event":"generation_start","generation":2}
{"event":"node_lost","generation":3,"reason":"node b is silent"})",
                          100)
                          .events;
  const std::vector<GenerationStart> starts{{0, 4, 1}, {1, 3, 8}, {2, 4, 20}, {4, 2, 30}};
  const auto marks = marks_of(starts, events, {10, 20});
  EXPECT_THAT(
      marks,
      ElementsAre(
          Mark{MarkKind::kRestart, 8, "generation 1, world size 3, after rank 1 killed by SIGKILL"},
          Mark{MarkKind::kCheckpoint, 10, ""},
          Mark{MarkKind::kResume, 20, "generation 2, world size 4"},
          Mark{MarkKind::kCheckpoint, 20, ""},
          Mark{MarkKind::kRestart, 30, "generation 4, world size 2, after node b is silent"}));
  EXPECT_TRUE(marks_of({}, {}, {}).empty());
  EXPECT_TRUE(marks_of({{1, 1, 1}}, {}, {}).empty()) << "how it began";
  EXPECT_STREQ(name_of(MarkKind::kResume), "resume");
}

}  // namespace
}  // namespace lockstep::cli
