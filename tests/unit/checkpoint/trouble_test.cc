// Saves while something is slow, busy, dead or full, and many of them.
#include "base/clock.h"
#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint {
namespace {

// "" or what is wrong with the newest checkpoint of `folder`, which is to be that of `step`.
std::string newest_is_not(int64_t step, const std::filesystem::path& folder) {
  RankState state = state_of(odd_model(), 0, 1);
  const auto loaded = newest_valid(disk(), folder, state.targets(), 1);
  if (!loaded.ok()) return loaded.error().message;
  if (loaded.value().manifest.step != step) return text("step ", loaded.value().manifest.step);
  return state.difference(step);
}

TEST(Trouble, DueWhileOneIsWrittenIsSkippedOrWaitsAndTheSnapshotStays) {
  const TempDir dir;
  FaultyFileSystem held(disk());
  World world(held, options_in(dir / "c"), odd_model(), 1);
  Engine& engine = *world.engines[0];
  held.set_plan({.op = Op::kSync, .at_call = 1, .fault = Fault::kHold});
  world.states[0]->fill(1);
  ASSERT_TRUE(engine.begin_save({.step = 1, .updates = 1}).value());
  engine.wait_staged();
  world.states[0]->fill(2);  // training goes on; the snapshot must not change
  EXPECT_FALSE(engine.begin_save({.step = 2, .updates = 2}).value());  // skip
  held.set_plan({});
  engine.drain();  // wait
  EXPECT_EQ(newest_is_not(1, dir / "c"), "");
  EXPECT_EQ(engine.phase(), SavePhase::kCommitted);
  EXPECT_EQ(engine.take_reports().size(), 1u);
  EXPECT_EQ(engine.phase(), SavePhase::kIdle);
  EXPECT_TRUE(engine.begin_save({.step = 2, .updates = 2}).value());
  engine.drain();
  EXPECT_EQ(newest_is_not(2, dir / "c"), "");
  EXPECT_EQ(world.pages[0]->read().committed_step, 2);
}

// A recovery does not wait for a disk. What is held here is each sync of a save in turn, with those
// after the commit; it ends when the next generation has long saved.
TEST(Trouble, AnEngineThatEndsDoesNotWaitForASync) {
  int64_t syncs[2] = {0, 0}, committed = 0, given_up = 0;
  const Op ops[2] = {Op::kSync, Op::kSyncDirectory};
  {
    const TempDir dir;
    FaultyFileSystem counted(disk());
    World world(counted, options_in(dir / "c"), odd_model(), 1);
    ASSERT_TRUE(world.save(1)[0].committed);
    counted.set_plan({});
    ASSERT_TRUE(world.save(2)[0].committed);
    for (const int i : {0, 1}) syncs[i] = counted.calls(ops[i]);
  }
  for (int64_t number = 0; number < syncs[0] + syncs[1]; ++number) {
    const Op op = ops[number < syncs[0] ? 0 : 1];
    const int64_t at_call = number < syncs[0] ? number + 1 : number - syncs[0] + 1;
    SCOPED_TRACE(text("operation ", static_cast<int>(op), ", call ", at_call));
    const TempDir dir;
    auto* held = new FaultyFileSystem(disk());  // the sync that was left alone borrows it
    {
      World world(*held, options_in(dir / "c"), odd_model(), 1);
      ASSERT_TRUE(world.save(1)[0].committed);
      held->set_plan({.op = op, .at_call = at_call, .fault = Fault::kHold});
      world.states[0]->fill(2);
      world.begin({.step = 2, .updates = 2});
      while (held->calls(op) < at_call) std::this_thread::yield();
      const double start_s = system_clock().monotonic_s();
      world.engines.clear();
      EXPECT_LT(system_clock().monotonic_s() - start_s, 1.0);
    }
    const bool lost = newest_is_not(2, dir / "c") != "";
    ++(lost ? given_up : committed);
    EXPECT_EQ(newest_is_not(lost ? 1 : 2, dir / "c"), "");
    World next(disk(), options_in(dir / "c", 2), odd_model(), 1);
    EXPECT_TRUE(next.save(3)[0].committed);
    held->set_plan({});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(newest_is_not(3, dir / "c"), "");
    for (const auto& entry : list_checkpoints(disk(), dir / "c").value())
      EXPECT_TRUE(entry.committed) << entry.directory;
    static std::vector<FaultyFileSystem*> lent;
    lent.push_back(held);
  }
  EXPECT_GE(given_up, 4);
  EXPECT_GE(committed, 2);
}

TEST(Trouble, ASlowDiskDelaysTheCommitAndNotTheTrainer) {
  const TempDir dir;
  FaultyFileSystem slow(disk());
  World world(slow, options_in(dir / "c"), odd_model(), 2);
  const auto timed = [&](int64_t step, double& stalled_s) {
    for (auto& state : world.states) state->fill(step);
    const double start_s = system_clock().monotonic_s();
    world.begin({.step = step, .updates = step});
    for (auto& engine : world.engines) engine->wait_staged();
    stalled_s = system_clock().monotonic_s() - start_s;
    for (const SaveReport& report : world.end()) EXPECT_TRUE(report.committed) << report.error;
    return system_clock().monotonic_s() - start_s;
  };
  double stalled_s = 0;
  slow.set_plan({});
  const double usual_s = timed(1, stalled_s);
  const auto calls = static_cast<double>(slow.calls(Op::kAny));
  slow.set_plan({.delay_ns = static_cast<int64_t>(10e9 * std::max(usual_s, 0.05) / calls)});
  const double slow_s = timed(2, stalled_s);
  EXPECT_GT(slow_s, 5 * usual_s);
  EXPECT_LT(stalled_s, 0.2 * slow_s);
  EXPECT_EQ(newest_is_not(2, dir / "c"), "");
}

TEST(Trouble, ASlowRankIsWaitedForUntilTheDeadlineAndThenTheAttemptIsAbandoned) {
  const TempDir dir;
  FaultyFileSystem second(disk());
  auto options = options_in(dir / "c");
  World patient({&disk(), &second}, options, odd_model());
  second.set_plan({.delay_ns = 5'000'000});
  ASSERT_TRUE(patient.save(1)[0].committed);
  options.generation = 2;
  options.vote_deadline = std::chrono::milliseconds(200);
  World world({&disk(), &second}, options, odd_model());
  for (auto& state : world.states) state->fill(2);
  second.set_plan({.op = Op::kMakeDirectories, .at_call = 1, .fault = Fault::kHold});
  world.begin({.step = 2, .updates = 2});
  world.engines[0]->drain();  // the deadline passes
  const auto first = world.engines[0]->take_reports();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_THAT(first[0].error, HasSubstr("rank 1"));
  second.set_plan({});  // it wakes, and writes all of its file
  const auto late = world.end();
  ASSERT_EQ(late.size(), 1u);
  EXPECT_FALSE(late[0].committed);
  EXPECT_EQ(newest_is_not(1, dir / "c"), "");
  EXPECT_TRUE(world.save(3)[0].committed);
  EXPECT_EQ(newest_is_not(3, dir / "c"), "");
  const World next(disk(), options_in(dir / "c", 3), odd_model(), 1);  // collects what it wrote
  const auto entries = list_checkpoints(disk(), dir / "c").value();
  for (const auto& entry : entries) EXPECT_TRUE(entry.committed) << entry.directory;
}

// A rank's line to the others. While `cut`, that of the dying rank does not work, and the others
// wait for it a short time only; no other save here depends on how fast the disk is.
class CutBallot final : public Ballot {
 public:
  CutBallot(Ballot& behind, const std::atomic<bool>& cut, bool dying)
      : behind_(behind), cut_(cut), dying_(dying) {}
  Result<void> cast(const std::string& attempt, int rank, const std::string& vote) override {
    return dead() ? gone() : behind_.cast(attempt, rank, vote);
  }
  Result<std::vector<std::string>> collect(const std::string& attempt, int world_size,
                                           std::chrono::milliseconds deadline) override {
    if (dead()) return gone().error();
    return behind_.collect(attempt, world_size, cut_ ? kShort : deadline);
  }
  Result<void> announce(const std::string& attempt, const std::string& outcome) override {
    return dead() ? gone() : behind_.announce(attempt, outcome);
  }
  Result<std::string> await_outcome(const std::string& attempt,
                                    std::chrono::milliseconds deadline) override {
    if (dead()) return gone().error();
    return behind_.await_outcome(attempt, cut_ ? 2 * kShort : deadline);
  }

 private:
  static constexpr std::chrono::milliseconds kShort{200};
  static Result<void> gone() { return Error{Code::kPeerLost, "the line is cut"}; }
  bool dead() const { return cut_ && dying_; }
  Ballot& behind_;
  const std::atomic<bool>& cut_;
  const bool dying_;
};

TEST(Trouble, ARankThatDiesWhileVotingEndsTheAttemptAndTheNextOneWorks) {
  for (int dying : {2, 0}) {
    SCOPED_TRACE(text("rank ", dying));
    const TempDir dir;
    std::atomic<bool> cut = false;
    std::vector<std::unique_ptr<CutBallot>> lines;
    World world(World::Disks(3, &disk()), options_in(dir / "c"), odd_model(),
                [&](int rank, Ballot& shared) -> Ballot& {
                  lines.push_back(std::make_unique<CutBallot>(shared, cut, rank == dying));
                  return *lines.back();
                });
    ASSERT_TRUE(world.save(1)[0].committed);
    cut = true;  // its file is whole on the disk, its vote never comes
    for (const SaveReport& report : world.save(2)) {
      EXPECT_FALSE(report.committed);
      EXPECT_THAT(report.error, testing::AnyOf(HasSubstr("rank 2"), HasSubstr("from rank 0"),
                                               HasSubstr("the line is cut")));
    }
    EXPECT_EQ(newest_is_not(1, dir / "c"), "");
    cut = false;
    EXPECT_TRUE(world.save(3)[0].committed);
    EXPECT_EQ(newest_is_not(3, dir / "c"), "");
    World fewer(disk(), options_in(dir / "c", 2), odd_model(), 2);  // or a restart without it
    EXPECT_TRUE(fewer.save(4)[0].committed);
    const auto entries = list_checkpoints(disk(), dir / "c").value();
    for (const auto& entry : entries) EXPECT_TRUE(entry.committed) << entry.directory;
    world.engines.clear();  // before the line that they use
  }
}

TEST(Trouble, ARankThatIsGoneIsNamedAfterTheDeadline) {
  const TempDir dir;
  auto options = options_in(dir / "c");
  options.vote_deadline = std::chrono::milliseconds(200);
  World world(disk(), options, odd_model(), 3);
  world.engines.pop_back();
  const auto reports = world.save(4);
  ASSERT_EQ(reports.size(), 2u);
  for (const auto& report : reports) {
    EXPECT_FALSE(report.committed);
    EXPECT_THAT(report.error, HasSubstr("from rank 2"));
  }
  EXPECT_TRUE(list_checkpoints(disk(), dir / "c").value().empty());
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int64_t kAllowedGrowthKib = 1 << 20;  // the sanitizers keep records of their own
#else
constexpr int64_t kAllowedGrowthKib = 2048;
#endif

int64_t open_descriptors() {
  return static_cast<int64_t>(disk().list("/proc/self/fd").value().size());
}
int64_t resident_kib() {
  std::string statm(64, '\0');
  const auto file = disk().open("/proc/self/statm").value().release();
  (void)file->read_at(std::as_writable_bytes(std::span(statm)), 0).ok();  // ends early: fine
  delete file;
  return std::stoll(statm.substr(statm.find(' '))) * 4;
}

int64_t thread_count() {
  return static_cast<int64_t>(disk().list("/proc/self/task").value().size());
}

TEST(Trouble, TwoHundredSavesLeakNothing) {
  const TempDir dir;
  auto options = options_in(dir / "c");
  options.threads = 2;
  World world(disk(), options, odd_model(), 2);
  for (int64_t step = 1; step <= 20; ++step) ASSERT_TRUE(world.save(step)[0].committed);
  const int64_t descriptors = open_descriptors(), resident = resident_kib();
  const int64_t threads = thread_count();
  for (int64_t step = 21; step <= 220; ++step) ASSERT_TRUE(world.save(step)[0].committed);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(thread_count(), threads);
  EXPECT_LT(resident_kib() - resident, kAllowedGrowthKib);
}

TEST(Trouble, FailedSavesLeakNothing) {
  const TempDir dir;
  FaultyFileSystem full(disk());
  World world(full, options_in(dir / "c"), odd_model(), 1);
  ASSERT_TRUE(world.save(1)[0].committed);
  int64_t descriptors = 0, resident = 0;
  for (int64_t step = 2; step <= 60; ++step) {
    full.set_plan(
        {.op = Op::kWrite, .at_call = step % 3 + 1, .fault = Fault::kNoSpace, .and_after = true});
    EXPECT_FALSE(world.save(step)[0].committed);
    if (step == 20) descriptors = open_descriptors(), resident = resident_kib();
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_LT(resident_kib() - resident, kAllowedGrowthKib);
}

}  // namespace
}  // namespace lockstep::checkpoint
