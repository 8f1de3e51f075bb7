// Saves while something is slow, busy, dead or full, and many of them.
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/eventually.h"
#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::eventually;

int64_t thread_count() {
  return static_cast<int64_t>(disk().list("/proc/self/task").value().size());
}

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
  engine.wait_read();
  world.states[0]->fill(2);  // training goes on; the snapshot must not change
  EXPECT_FALSE(engine.begin_save({.step = 2, .updates = 2}).value());  // skip
  held.set_plan({});
  ASSERT_TRUE(drain(engine));  // wait
  EXPECT_EQ(newest_is_not(1, dir / "c"), "");
  EXPECT_EQ(engine.phase(), SavePhase::kCommitted);
  EXPECT_EQ(engine.take_reports().size(), 1u);
  EXPECT_EQ(engine.phase(), SavePhase::kIdle);
  EXPECT_TRUE(engine.begin_save({.step = 2, .updates = 2}).value());
  ASSERT_TRUE(drain(engine));
  EXPECT_EQ(newest_is_not(2, dir / "c"), "");
  EXPECT_EQ(world.pages[0]->read().committed_step, 2);
}

TEST(Trouble, EachCallToStorageIsKnownWhileItIsUnderWay) {
  const TempDir dir;
  FaultyFileSystem held(disk());
  EngineOptions options = options_in(dir / "c");
  options.retention.keep_latest_k = 2;
  World world(held, options, odd_model(), 1);
  Engine& engine = *world.engines[0];
  for (const int64_t step : {1, 2}) ASSERT_TRUE(world.save(step)[0].committed);
  int64_t calls = 0, step = 2;
  for (bool reached = true; reached; ++calls) {
    held.set_plan({.at_call = calls + 1, .fault = Fault::kHold});
    world.states[0]->fill(++step);
    ASSERT_TRUE(engine.begin_save({.step = step, .updates = step}).value());
    reached =
        eventually([&] {
          return held.calls(Op::kAny) > calls || engine.drain_for(std::chrono::milliseconds(0));
        }) &&
        held.calls(Op::kAny) > calls;
    EXPECT_EQ(engine.call_under_way().has_value(), reached) << "call " << calls + 1;
    held.set_plan({});
    ASSERT_TRUE(drain(engine));
    EXPECT_FALSE(engine.call_under_way());
    EXPECT_EQ(newest_is_not(step, dir / "c"), "");
  }
  EXPECT_GT(calls, 20);
}

TEST(Trouble, ASaveThatWaitsForAnotherRankHasNoCallUnderWay) {
  for (const size_t slow : {0u, 1u}) {  // the other one waits for rank 0's outcome, or for a vote
    SCOPED_TRACE(text("rank ", slow));
    const TempDir dir;
    FaultyFileSystem disks[2] = {FaultyFileSystem(disk()), FaultyFileSystem(disk())};
    World world({&disks[0], &disks[1]}, options_in(dir / "c"), odd_model());
    disks[slow].set_plan({.op = Op::kMakeDirectories, .at_call = 1, .fault = Fault::kHold});
    for (auto& state : world.states) state->fill(1);
    world.begin({.step = 1, .updates = 1});
    const Engine &other = *world.engines[1 - slow], &held = *world.engines[slow];
    EXPECT_TRUE(eventually([&] { return other.phase() == SavePhase::kVoting; }));
    EXPECT_TRUE(eventually([&] { return disks[slow].calls(Op::kMakeDirectories) > 0; }));
    EXPECT_FALSE(other.call_under_way());
    EXPECT_TRUE(held.call_under_way());
    disks[slow].set_plan({});
    for (const SaveReport& report : world.end()) EXPECT_TRUE(report.committed) << report.error;
  }
}

// A recovery does not wait for a disk. What is held here is each sync of a save in turn, with those
// after the commit; it ends when the next generation has long saved. An engine that waited for it
// would wait for ever.
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
      world.engines.clear();
    }
    const bool lost = newest_is_not(2, dir / "c") != "";
    ++(lost ? given_up : committed);
    EXPECT_EQ(newest_is_not(lost ? 1 : 2, dir / "c"), "");
    World next(disk(), options_in(dir / "c", 2), odd_model(), 1);
    EXPECT_TRUE(next.save(3)[0].committed);
    const int64_t threads = thread_count();
    held->set_plan({});
    EXPECT_TRUE(eventually([&] { return thread_count() < threads; }));  // the one that was held
    EXPECT_EQ(newest_is_not(3, dir / "c"), "");
    for (const auto& entry : list_checkpoints(disk(), dir / "c").value())
      EXPECT_TRUE(entry.committed) << entry.directory;
    static auto& lent = *new std::vector<FaultyFileSystem*>;  // not freed when programs end
    lent.push_back(held);
  }
  EXPECT_GE(given_up, 4);
  EXPECT_GE(committed, 2);
}

// However slow it is: every call is held until the trainer has gone on.
TEST(Trouble, ASlowDiskDelaysTheCommitAndNotTheTrainer) {
  const TempDir dir;
  FaultyFileSystem slow(disk());
  World world(slow, options_in(dir / "c"), odd_model(), 2);
  for (auto& state : world.states) state->fill(1);
  slow.set_plan({.op = Op::kAny, .at_call = 1, .fault = Fault::kHold, .and_after = true});
  world.begin({.step = 1, .updates = 1});
  for (auto& engine : world.engines) engine->wait_read();
  for (auto& state : world.states) state->fill(2);
  for (auto& engine : world.engines) EXPECT_NE(engine->phase(), SavePhase::kCommitted);
  slow.set_plan({});
  for (const SaveReport& report : world.end()) EXPECT_TRUE(report.committed) << report.error;
  EXPECT_EQ(newest_is_not(1, dir / "c"), "");
}

// A rank's line to the others. That of the rank that is lost, if one is, does not work. No clock
// says when the others have waited for it for long enough: they do not wait.
class LossyBallot final : public Ballot {
 public:
  LossyBallot(Ballot& behind, const std::atomic<int>& lost, int rank)
      : behind_(behind), lost_(lost), rank_(rank) {}
  Result<void> tell(const std::string& key, const std::string& words) override {
    return dead() ? gone() : behind_.tell(key, words);
  }
  Result<std::string> hear(const std::string& key, std::chrono::milliseconds deadline) override {
    if (dead()) return gone().error();
    const int lost = lost_;
    const std::string of_lost = lost == 0 ? "/outcome" : text("/", lost);
    return behind_.hear(key, key.ends_with(of_lost) ? std::chrono::milliseconds(0) : deadline);
  }
  void forget(const std::string& key) override { behind_.forget(key); }

 private:
  static Result<void> gone() { return Error{Code::kPeerLost, "the line is cut"}; }
  bool dead() const { return lost_ == rank_; }
  Ballot& behind_;
  const std::atomic<int>& lost_;
  const int rank_;
};

// A world whose rank `lost` is lost; -1: none is.
struct LossyWorld {
  LossyWorld(const World::Disks& disks, const EngineOptions& options)
      : world(disks, options, odd_model(), [this](int rank, Ballot& shared) -> Ballot& {
          lines.push_back(std::make_unique<LossyBallot>(shared, lost, rank));
          return *lines.back();
        }) {}
  std::atomic<int> lost = -1;
  std::vector<std::unique_ptr<LossyBallot>> lines;
  World world;
};

TEST(Trouble, ASlowRankIsWaitedForUntilTheDeadlineAndThenTheAttemptIsAbandoned) {
  const TempDir dir;
  FaultyFileSystem second(disk());
  World patient({&disk(), &second}, options_in(dir / "c"), odd_model());
  second.set_plan({.delay_ns = 5'000'000});
  ASSERT_TRUE(patient.save(1)[0].committed);
  LossyWorld lossy({&disk(), &second}, options_in(dir / "c", 2));
  World& world = lossy.world;
  for (auto& state : world.states) state->fill(2);
  second.set_plan({.op = Op::kMakeDirectories, .at_call = 1, .fault = Fault::kHold});
  lossy.lost = 1;
  world.begin({.step = 2, .updates = 2});
  ASSERT_TRUE(drain(*world.engines[0]));  // the deadline passes
  const auto first = world.engines[0]->take_reports();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_THAT(first[0].error, HasSubstr("rank 1"));
  lossy.lost = -1;
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

TEST(Trouble, ARankThatDiesWhileVotingEndsTheAttemptAndTheNextOneWorks) {
  for (int dying : {2, 0}) {
    SCOPED_TRACE(text("rank ", dying));
    const TempDir dir;
    LossyWorld lossy(World::Disks(3, &disk()), options_in(dir / "c"));
    World& world = lossy.world;
    ASSERT_TRUE(world.save(1)[0].committed);
    lossy.lost = dying;  // its file is whole on the disk, its vote never comes
    for (const SaveReport& report : world.save(2)) {
      EXPECT_FALSE(report.committed);
      EXPECT_THAT(report.error, testing::AnyOf(HasSubstr("rank 2"), HasSubstr("rank 0's outcome"),
                                               HasSubstr("the line is cut")));
    }
    EXPECT_EQ(newest_is_not(1, dir / "c"), "");
    lossy.lost = -1;
    EXPECT_TRUE(world.save(3)[0].committed);
    EXPECT_EQ(newest_is_not(3, dir / "c"), "");
    World fewer(disk(), options_in(dir / "c", 2), odd_model(), 2);  // or a restart without it
    EXPECT_TRUE(fewer.save(4)[0].committed);
    const auto entries = list_checkpoints(disk(), dir / "c").value();
    for (const auto& entry : entries) EXPECT_TRUE(entry.committed) << entry.directory;
  }
}

TEST(Trouble, ARankThatIsGoneIsNamedAfterTheDeadline) {
  const TempDir dir;
  LossyWorld lossy(World::Disks(3, &disk()), options_in(dir / "c"));
  lossy.lost = 2;
  lossy.world.engines.pop_back();
  const auto reports = lossy.world.save(4);
  ASSERT_EQ(reports.size(), 2u);
  for (const auto& report : reports) {
    EXPECT_FALSE(report.committed);
    EXPECT_THAT(report.error, HasSubstr("from rank 2"));
  }
  EXPECT_EQ(reports[0].code, Code::kTimeout);
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
  return std::stoll(statm.substr(statm.find(' '))) * ::sysconf(_SC_PAGESIZE) / 1024;
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
  // Those of a sync end by themselves.
  EXPECT_TRUE(eventually([&] { return thread_count() <= threads; })) << thread_count();
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
    const auto reports = world.save(step);
    EXPECT_FALSE(reports[0].committed);
    EXPECT_EQ(reports[0].code, Code::kNoSpace) << reports[0].error;
    if (step == 20) descriptors = open_descriptors(), resident = resident_kib();
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_LT(resident_kib() - resident, kAllowedGrowthKib);
}

}  // namespace
}  // namespace lockstep::checkpoint
