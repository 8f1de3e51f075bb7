// Every event in every state, and random walks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "base/text.h"
#include "supervisor_driver.h"
#include "tests/support/seed.h"

namespace lockstep::launcher::control {
namespace {

using testing::Contains;
using testing::IsEmpty;

// Whatever comes in whatever state: it never crashes, and what has ended stays ended and silent.
TEST(Supervisor, EveryEventInEveryState) {
  const auto forming = [] {
    Driver d(workers(2));
    d.on(Begin{});
    return d;
  };
  const auto running = [&] {
    Driver d = forming();
    d.on(Started{});
    return d;
  };
  const auto stopping = [&] {
    Driver d = running();
    d.exits({killed(0, SIGKILL)});
    return d;
  };
  const auto done = [&] {
    Driver d = running();
    d.exits({ended(0, 0), ended(1, 0)});
    return d;
  };
  const auto failed = [&] {
    Driver d = forming();
    d.on(SpawnFailed{"x"});
    return d;
  };
  const std::vector<JobEvent> events = {Started{},
                                        SpawnFailed{"x"},
                                        WorkersExited{{killed(1, SIGKILL)}, 0},
                                        Tick{{}},
                                        Tick{std::vector<Sample>(5)},
                                        StopRequested{SIGTERM}};
  //                     Started     SpawnFailed WorkersExited Tick        Tick        StopRequested
  const State F = State::kForming, R = State::kRunning, S = State::kStopping, D = State::kDone,
              X = State::kFailed;
  const std::vector<std::pair<Driver, std::vector<State>>> table = {
      {forming(), {R, X, F, F, F, F}},
      {running(), {R, R, S, R, R, S}},
      {stopping(), {S, S, F, S, S, S}},
      {done(), {D, D, D, D, D, D}},
      {failed(), {X, X, X, X, X, X}}};
  for (const auto& [start, next] : table)
    for (size_t i = 0; i < events.size(); ++i) {
      Driver d = start;
      const State before = d.supervisor.state();
      const auto deeds = d.on(events[i]);
      EXPECT_EQ(d.supervisor.state(), next[i]) << state_name(before) << ", event " << i;
      if (before == D || before == X) {
        EXPECT_THAT(deeds, IsEmpty());
      }
    }
}

// Random walks: every generation is reaped before the next one starts, restarts are bounded, and
// the run ends after finitely many failures.
TEST(Supervisor, RandomWalksKeepTheInvariants) {
  const uint64_t seed = test_support::seed_or(12345);
  SCOPED_TRACE(text("LOCKSTEP_SEED=", seed));
  uint64_t random = seed;
  const auto draw = [&](uint64_t limit) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<int>((random >> 33) % limit);
  };
  for (int walk = 0; walk < 2000; ++walk) {
    SupervisorOptions options = workers(1 + draw(4));
    options.shrink = draw(2) == 1;
    options.max_restarts = draw(5);
    Supervisor supervisor(options);
    std::vector<bool> alive;
    int finishes = 0, generations = 0;
    std::vector<JobEvent> todo = {Begin{}};
    for (int64_t now = 1; finishes == 0 && now < 500; ++now) {
      JobEvent event = Tick{std::vector<Sample>(alive.size())};
      if (!todo.empty()) {
        event = todo.back();
        todo.pop_back();
      } else if (const int rank = draw(std::max<size_t>(alive.size(), 1)); alive[rank]) {
        static constexpr int kCodes[] = {0, 0, 1, 64, 70, 75, 76, 93};
        event = WorkersExited{
            {draw(2) ? killed(rank, draw(2) ? SIGKILL : SIGSEGV) : ended(rank, kCodes[draw(8)])},
            0};
        alive[rank] = false;
      } else if (draw(20) == 0) {
        event = StopRequested{draw(2) ? SIGTERM : SIGINT};
      }
      for (const JobAction& action : supervisor.on(event, now)) {
        EXPECT_EQ(finishes, 0);
        if (const auto* spawn = std::get_if<Prepare>(&action)) {
          for (const bool one : alive) EXPECT_FALSE(one);
          EXPECT_EQ(spawn->generation, generations++);
          alive.assign(static_cast<size_t>(spawn->world_size), true);
          todo.push_back(Started{});
        }
        if (std::holds_alternative<TermWorkers>(action)) {
          EXPECT_THAT(alive, Contains(true));
        }
        if (std::holds_alternative<Finish>(action)) ++finishes;
      }
    }
    EXPECT_EQ(finishes, 1);
    for (const bool one : alive) EXPECT_FALSE(one);
    EXPECT_LE(generations, 1 + std::min<int64_t>(options.max_restarts, options.max_no_progress));
  }
}

}  // namespace
}  // namespace lockstep::launcher::control
