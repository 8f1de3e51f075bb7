// Ranks that save and load a made-up model, each with a file system and a line to the ranks' store
// of its own that count. Behind them are one disk and one store in memory.
//
// Each call to the file system takes a millisecond of a simulated clock, and nothing else takes
// any. A rank's clock is its own calls and what it waited for: who hears a word goes on when its
// own clock and that of the rank that told it have both come there.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/counting_file_system.h"
#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint::test_support {

inline const std::filesystem::path kFolder = "/run/checkpoints";
// Each rank has a piece of every tensor at every world size, as each has one of every unit.
inline std::vector<TensorSpec> model() { return {{"a", {64, 32}}, {"b", {2048}}}; }

using lockstep::test_support::Cost;
using lockstep::test_support::CountingFileSystem;
using lockstep::test_support::Tally;

// When each word was told, on the simulated clock.
class ToldTimes {
 public:
  void note(const std::string& key, int64_t at_ms) {
    const std::lock_guard lock(mutex_);
    times_[key] = at_ms;
  }
  int64_t of(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto at = times_.find(key);
    return at == times_.end() ? 0 : at->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> times_;
};

// A rank's line to the ranks' store. Thread: one, that of the rank.
class CountingBallot final : public Ballot {
 public:
  CountingBallot(Ballot& behind, Tally& tally, ToldTimes& told)
      : behind_(behind), tally_(tally), told_(told) {}
  Result<void> tell(const std::string& key, const std::string& words) override {
    note(words.size());
    last_word_ms_ = now_ms();
    told_.note(key, last_word_ms_);
    return behind_.tell(key, words);
  }
  Result<std::string> hear(const std::string& key, std::chrono::milliseconds deadline) override {
    auto words = behind_.hear(key, deadline);
    note(words.ok() ? words.value().size() : 0);
    waited_ms_ += std::max<int64_t>(0, told_.of(key) - now_ms());
    last_word_ms_ = now_ms();
    return words;
  }
  void forget(const std::string& key) override {
    note(0);
    behind_.forget(key);
  }
  int64_t now_ms() const { return tally_.calls() + waited_ms_; }
  // When it last told or heard something.
  int64_t last_word_ms() const { return last_word_ms_; }
  void reset() { waited_ms_ = last_word_ms_ = 0; }

 private:
  void note(size_t bytes) {
    tally_.add(Cost::kRequests);
    tally_.add(Cost::kStoreBytes, bytes);
  }
  Ballot& behind_;
  Tally& tally_;
  ToldTimes& told_;
  int64_t waited_ms_ = 0, last_word_ms_ = 0;
};

// The ranks of one world size, and what each asked for since the last reset.
struct CountedRanks {
  CountedRanks(FileSystem& disk, int world_size, const std::vector<TensorSpec>& model,
               const EngineOptions& options)
      : tallies(static_cast<size_t>(world_size)) {
    for (Tally& tally : tallies) {
      disks.push_back(std::make_unique<CountingFileSystem>(disk, tally));
      seams.push_back(disks.back().get());
    }
    world =
        std::make_unique<World>(seams, options, model, [this](int rank, Ballot& shared) -> Ballot& {
          lines.push_back(
              std::make_unique<CountingBallot>(shared, tallies[static_cast<size_t>(rank)], told));
          return *lines.back();
        });
  }
  void reset() {
    for (Tally& tally : tallies) tally.reset();
    for (auto& line : lines) line->reset();
  }

  std::vector<Tally> tallies;
  std::vector<std::unique_ptr<CountingFileSystem>> disks;
  World::Disks seams;
  ToldTimes told;
  std::vector<std::unique_ptr<CountingBallot>> lines;
  std::unique_ptr<World> world;
};

}  // namespace lockstep::checkpoint::test_support
