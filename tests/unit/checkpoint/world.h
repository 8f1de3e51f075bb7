// The ranks of one process that save a made-up model: what the checkpoint tests share.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/record/catalog.h"
#include "checkpoint/save/engine.h"
#include "checkpoint/tools/progress.h"
#include "tests/support/memory_ballot.h"
#include "tests/unit/checkpoint/made_up_state.h"
#include "worker_link/progress_page.h"

namespace lockstep::checkpoint::test_support {

inline const Progress kSilent = [](int64_t, int64_t) {};

// Whether the save in flight ends.
inline bool drain(Engine& engine) { return engine.drain_for(std::chrono::minutes(1)); }

// All ranks of one generation in one process. A rank may have a disk or a ballot of its own.
struct World {
  using Disks = std::vector<FileSystem*>;
  World(FileSystem& disk, const EngineOptions& base, const std::vector<TensorSpec>& model,
        int world_size, Dtype moments = Dtype::kF32)
      : World(Disks(static_cast<size_t>(world_size), &disk), base, model, {}, moments) {}
  World(const Disks& disks, EngineOptions base, const std::vector<TensorSpec>& model,
        const std::function<Ballot&(int, Ballot&)>& ballot_of = {}, Dtype moments = Dtype::kF32) {
    base.world_size = static_cast<int>(disks.size());
    for (base.rank = 0; base.rank < base.world_size; ++base.rank) {
      states.push_back(
          std::make_unique<RankState>(state_of(model, base.rank, base.world_size, moments)));
      sources.push_back(std::make_unique<HostState>(states.back()->live()));
      pages.push_back(ProgressPage::in_memory());
      auto engine = Engine::create(base, *disks[static_cast<size_t>(base.rank)],
                                   ballot_of ? ballot_of(base.rank, ballot) : ballot, *pages.back(),
                                   *sources.back());
      if (!engine.ok()) {
        error = engine.error().message;
        return;
      }
      engines.push_back(std::move(engine).value());
    }
  }
  // Saves the state of `step` on all ranks and waits. Rank 0's report first.
  std::vector<SaveReport> save(int64_t step) {
    for (auto& state : states) state->fill(step);
    return save(
        SaveRequest{.step = step, .updates = step, .trainer_state = text("{\"step\":", step, "}")});
  }
  // Saves what is there.
  std::vector<SaveReport> save(const SaveRequest& request) {
    begin(request);
    return end();
  }
  void begin(const SaveRequest& request) {
    for (auto& engine : engines)
      if (auto begun = engine->begin_save(request); !begun.ok()) error = begun.error().message;
  }
  std::vector<SaveReport> end() {
    std::vector<SaveReport> reports;
    for (auto& engine : engines) engine->wait_read();
    for (auto& engine : engines) {
      if (!drain(*engine)) error = "a save does not end";
      for (SaveReport& report : engine->take_reports()) reports.push_back(std::move(report));
    }
    return reports;
  }

  MemoryBallot ballot;
  std::vector<std::unique_ptr<RankState>> states;
  std::vector<std::unique_ptr<HostState>> sources;
  std::vector<std::unique_ptr<ProgressPage>> pages;
  std::vector<std::unique_ptr<Engine>> engines;
  std::string error;
};

inline EngineOptions options_in(const std::filesystem::path& folder, int64_t generation = 1) {
  EngineOptions options;
  options.folder = folder;
  options.generation = generation;
  options.nonce = "7f2a91";
  options.vote_deadline = std::chrono::milliseconds(20000);
  return options;
}

}  // namespace lockstep::checkpoint::test_support
