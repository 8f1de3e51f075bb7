#include "tests/crash/rank_processes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "base/clock.h"
#include "checkpoint/record/attempt.h"
#include "checkpoint/tools/verify.h"
#include "tests/support/eventually.h"

namespace lockstep::checkpoint::processes {

using Path = std::filesystem::path;

EngineOptions options_of(const Path& folder, int64_t generation) {
  EngineOptions options = options_in(folder, generation);
  options.retention.keep_latest_k = 2;
  return options;
}

void save_first_two(const Path& folder, const Model& model) {
  World first(disk(), options_of(folder, 1), model, 3);
  for (int64_t step = 1; step <= kPrevious; ++step) ASSERT_TRUE(first.save(step)[0].committed);
}

int64_t recovered_step(const Path& folder, const Model& model, int world_size) {
  int64_t step = -1;
  for (int rank = 0; rank < world_size; ++rank) {
    RankState state = state_of(model, rank, world_size);
    const auto loaded = newest_valid(disk(), folder, state.targets(), 1);
    if (!loaded.ok()) {
      ADD_FAILURE() << loaded.error().message;
      return -1;
    }
    EXPECT_EQ(loaded.value().fallbacks, 0);
    step = loaded.value().manifest.step;
    EXPECT_EQ(state.difference(step), "");
    const auto problems = verify(disk(), loaded.value().directory, 1);
    EXPECT_TRUE(problems.ok() && problems.value().empty());
  }
  World next(disk(), options_of(folder, 3), model, world_size);
  EXPECT_TRUE(next.save(kNext + 1)[0].committed);
  const auto entries = list_checkpoints(disk(), folder).value();
  for (const auto& entry : entries) EXPECT_TRUE(entry.committed) << entry.directory << " is left";
  return step;
}

namespace {

constexpr int kRanks = 5, kWriter = 1;  // of the file of ranks 1 to 4

// Words as files, which stay. Its process may die when it is to tell.
class FolderBallot final : public Ballot {
 public:
  explicit FolderBallot(Path folder) : folder_(std::move(folder)) {}
  void die_at_tell(int64_t k) { die_at_ = k; }
  Result<void> tell(const std::string& key, const std::string& words) override {
    if (--die_at_ == 0) ::raise(SIGKILL);
    const Path path = path_of(key), unfinished = path.string() + ".tmp";
    std::ofstream(unfinished, std::ios::binary) << words;
    std::filesystem::rename(unfinished, path);
    return {};
  }
  Result<std::string> hear(const std::string& key, std::chrono::milliseconds deadline) override {
    for (; !std::filesystem::exists(path_of(key)); --deadline) {
      if (deadline.count() <= 0) return Error{Code::kTimeout, "nobody told " + key};
      system_clock().sleep_ns(1'000'000);
    }
    return read_file(disk(), path_of(key));
  }
  void forget(const std::string&) override {}
  bool has(const std::string& key) const { return std::filesystem::exists(path_of(key)); }

 private:
  Path path_of(std::string key) const {
    std::replace(key.begin(), key.end(), '/', '!');
    return folder_ / key;
  }
  const Path folder_;
  std::atomic<int64_t> die_at_ = 0;
};

// Who dies, and when: at a call to its disk, or when it is to tell something.
struct Death {
  int rank;
  Fault fault;  // of its call; kNone: it is at a word
  int64_t at;
};

// One rank, in generation 2. Exits with 0 when committed.
[[noreturn]] void save_and_exit(const Path& folder, const Model& model, const Death& death,
                                int rank) {
  FaultyFileSystem faulty(disk());
  FolderBallot ballot(folder / "ballot");
  const auto page = ProgressPage::in_memory();
  RankState state = state_of(model, rank, kRanks);
  HostState source(state.live());
  EngineOptions options = options_of(folder / "c", 2);
  options.rank = rank;
  options.world_size = kRanks;
  options.ranks_per_file = 4;
  options.node_of_rank = {0, 1, 1, 1, 1};
  options.vote_deadline = std::chrono::minutes(10);
  const auto engine = Engine::create(options, faulty, ballot, *page, source).value();
  if (!engine->meet_neighbours(std::chrono::minutes(1)).ok()) ::_exit(2);
  // As the trainer has them agree on it: nobody dies before who is to see it has met it.
  if (!ballot.tell(text("met/", rank), "").ok()) ::_exit(2);
  for (int other = 0; other < kRanks; ++other)
    if (!ballot.hear(text("met/", other), std::chrono::minutes(1)).ok()) ::_exit(2);
  state.fill(kNext);
  if (rank == death.rank && death.fault == Fault::kNone) ballot.die_at_tell(death.at);
  if (rank == death.rank && death.fault != Fault::kNone)
    faulty.set_plan({.op = Op::kAny, .at_call = death.at, .fault = death.fault});
  if (!engine->begin_save({kNext, kNext}).value()) ::_exit(2);
  engine->drain_for(std::chrono::minutes(10));
  ::_exit(engine->take_reports().at(0).committed ? 0 : 1);
}

struct Seen {
  bool died = false;
  int64_t said_so = 0;  // votes that say that a process died
};

// The save. Once one has died, the others of its file vote at once; then all are killed, as their
// agents do.
Seen save_with_death(const Path& folder, const Model& model, const Death& death) {
  std::filesystem::create_directories(folder / "ballot");
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) save_and_exit(folder, model, death, rank);
    ranks.push_back(child);
  }
  const auto status_of = [&](int rank) {
    int status = 0;
    EXPECT_EQ(::waitpid(ranks[static_cast<size_t>(rank)], &status, 0),
              ranks[static_cast<size_t>(rank)]);
    return status;
  };
  Seen seen;
  const int status = status_of(death.rank);
  seen.died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  EXPECT_TRUE(seen.died || status == 0) << status;
  FolderBallot ballot(folder / "ballot");
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == death.rank) continue;
    const std::string vote = text("save/", attempt_name({kNext, 2, "7f2a91", 1}), "/", rank);
    if (seen.died && rank >= kWriter) {
      EXPECT_TRUE(lockstep::test_support::eventually([&] { return ballot.has(vote); })) << rank;
      const auto words = ballot.hear(vote, std::chrono::milliseconds(0));
      seen.said_so += words.ok() && words.value().find("process died") != std::string::npos;
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == death.rank) continue;
    if (seen.died) ::kill(ranks[static_cast<size_t>(rank)], SIGKILL);
    const int ended = status_of(rank);
    EXPECT_TRUE(seen.died || ended == 0) << "rank " << rank << ": " << ended;
  }
  return seen;
}

// At every call, or word, of a rank until it survives; there are `least` at least. How many votes
// said so in all.
int64_t kill_one_at_each(const Model& model, Death death, int64_t least) {
  const TempDir dir;
  save_first_two(dir / "start", model);
  int64_t deaths = 0, said_so = 0;
  bool died = true;
  for (death.at = 1; died; ++death.at) {
    if (death.at >= 2000) ADD_FAILURE() << "there is no end";
    if (death.at >= 2000 || testing::Test::HasFailure()) break;
    SCOPED_TRACE(text("rank ", death.rank, " at ", death.at));
    const Path folder = dir / text("run_", death.at);
    std::filesystem::create_directories(folder);
    std::filesystem::copy(dir / "start", folder / "c", std::filesystem::copy_options::recursive);
    const Seen seen = save_with_death(folder, model, death);
    died = seen.died;
    deaths += died;
    said_so += seen.said_so;
    EXPECT_EQ(recovered_step(folder / "c", model, static_cast<int>(death.at % 4) + 1),
              died ? kPrevious : kNext);
    std::filesystem::remove_all(folder);
  }
  EXPECT_GE(deaths, least);
  return said_so;
}

}  // namespace

void kill_ranks_of_a_file(const Model& model, std::span<const Fault> faults) {
  for (const Fault fault : faults)  // at three calls it has no chunk yet
    EXPECT_GE(kill_one_at_each(model, {kWriter, fault, 0}, 6), 9);
  EXPECT_EQ(kill_one_at_each(model, {kWriter, Fault::kNone, 0}, 1), 0) << "it had all chunks";
  EXPECT_EQ(kill_one_at_each(model, {3, Fault::kNone, 0}, 2), 3) << "at one it has handed over all";
}

}  // namespace lockstep::checkpoint::processes
