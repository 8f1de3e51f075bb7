// The small model of strategies.h, trained by ranks that are threads of a simulated machine.
#pragma once

#include "core/comm/device_communicator.h"
#include "core/comm/sim_communicator.h"
#include "core/kernels/sim_kernels.h"
#include "core/train/state_pieces.h"
#include "tests/unit/core/strategies.h"

namespace lockstep::core {

// The communicators of W ranks in groups of `shard_size`. Requires a world, which outlives them.
class SimGroups {
 public:
  SimGroups(int world_size, int shard_size) : shard_size_(shard_size) {
    const int copies = world_size / shard_size;
    world_ = std::make_shared<SimHub>("world", world_size);
    for (int g = 0; g < copies; ++g)
      shards_.push_back(std::make_shared<SimHub>("shard", shard_size));
    for (int s = 0; s < shard_size; ++s)
      copies_.push_back(std::make_shared<SimHub>("copies", copies));
  }
  struct OfRank {
    SimCommunicator world, shard, copies;
    Groups groups(at::Device device) { return {&world, &shard, &copies, device}; }
  };
  std::unique_ptr<OfRank> of(int rank) const {
    const int group = rank / shard_size_, place = rank % shard_size_;
    return std::make_unique<OfRank>(OfRank{
        SimCommunicator(world_, rank), SimCommunicator(shards_[static_cast<size_t>(group)], place),
        SimCommunicator(copies_[static_cast<size_t>(place)], group)});
  }

 private:
  int shard_size_;
  std::shared_ptr<SimHub> world_;
  std::vector<std::shared_ptr<SimHub>> shards_, copies_;
};

// Runs body(rank) on a thread for each rank of a machine; the first error in rank order, or none.
inline Result<void> on_sim(SimWorld::Options options, int ranks,
                           const std::function<Result<void>(int rank)>& body) {
  options.ranks = ranks;
  SimWorld world(options);
  std::vector<Result<void>> ends(static_cast<size_t>(ranks));
  const auto run = [&](int rank) -> Result<void> {
    try {
      sim_device().set_up(sim_device().of_rank(rank));
      return body(rank);
    } catch (const std::exception& e) {
      return Error{Code::kBug, e.what()};
    }
  };
  if (ranks == 1) return run(0);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      const SimRank turn(world, r);
      ends[static_cast<size_t>(r)] = run(r);
    });
  for (std::thread& t : threads) t.join();
  for (const Result<void>& end : ends) LOCKSTEP_RETURN_IF_ERROR(end);
  return {};
}

// A run of the small model, and what it does beside training.
struct SimRun {
  Setting setting;
  int64_t steps = 2;
  Reduction reduction = Reduction::kTree;
  bool staged = false;     // collectives go through host memory
  bool evaluates = false;  // after every step
  bool goes_back = false;  // after the last step, to the state before it, and does it again

  Config config() const {
    Config c = setting.config();
    c.training.reduction = reduction;
    return c;
  }
};

// One rank of it.
class SimTrainee {
 public:
  SimTrainee(const SimRun& run, const Config& config, const layout::ModelSpec& spec,
             SimGroups& groups, int rank)
      : run_(run), config_(config), rank_(rank), mine_(groups.of(rank)) {
    Groups all = mine_->groups(sim_device().of_rank(rank));
    if (run.staged)
      for (Communicator** one : {&all.world, &all.shard, &all.copies}) {
        staged_.push_back(stage_through_host({std::shared_ptr<void>(), *one}));
        *one = staged_.back().get();
      }
    model_ = std::make_unique<TrainingStep>(config, spec, all);
  }
  TrainingStep& model() { return *model_; }

  // Adds what must not depend on a seed to `lines`.
  Result<void> train(std::vector<std::string>& lines) {
    LOCKSTEP_RETURN_IF_ERROR(model_->initialize(nullptr));
    std::vector<std::vector<float>> before_last;
    for (int64_t step = 1; step <= run_.steps; ++step) {
      if (run_.goes_back && step == run_.steps) before_last = save();
      LOCKSTEP_RETURN_IF_ERROR(one_step(step, lines));
    }
    if (!run_.goes_back) return {};
    load(before_last);
    return one_step(run_.steps, lines);
  }

 private:
  Result<void> one_step(int64_t step, std::vector<std::string>& lines) {
    const std::vector<int64_t> slots = model_->slot_map().slots_of(rank_);
    size_t next = 0;
    LOCKSTEP_TRY(const StepOutcome outcome, model_->run(
                                                step, 1e-2, [] { return RankFlags{}; },
                                                [&]() -> Result<data::SlotBatch> {
                                                  return batch_of(config_, step, slots[next++]);
                                                },
                                                [] {}));
    lines.push_back(text(hex_float(outcome.loss), " ", hex_float(outcome.grad_norm)));
    if (!run_.evaluates) return {};
    LOCKSTEP_TRY(const SlotLoss loss,
                 model_->evaluate(4, [&](int64_t slot) -> Result<data::SlotBatch> {
                   return batch_of(config_, 100 + step, slot);
                 }));
    lines.push_back(text("evaluated ", hex_float(loss.sum)));
    return {};
  }
  // The state where a checkpoint reads and writes it.
  std::vector<std::span<float>> host_state() {
    std::vector<std::span<float>> all;
    for (const checkpoint::LiveTarget& target : held_targets(model_->units(), false))
      all.emplace_back(reinterpret_cast<float*>(target.bytes.data()),
                       target.bytes.size() / sizeof(float));
    return all;
  }
  std::vector<std::vector<float>> save() {
    model_->pull_state();
    std::vector<std::vector<float>> saved;
    for (const std::span<float> part : host_state()) saved.emplace_back(part.begin(), part.end());
    return saved;
  }
  void load(const std::vector<std::vector<float>>& saved) {
    size_t i = 0;
    for (const std::span<float> part : host_state()) {
      std::copy(saved[i].begin(), saved[i].end(), part.begin());
      ++i;
    }
    model_->refresh_compute_copies();
  }

  const SimRun& run_;
  const Config& config_;
  int rank_;
  std::unique_ptr<SimGroups::OfRank> mine_;
  std::vector<std::unique_ptr<Communicator>> staged_;
  std::unique_ptr<TrainingStep> model_;
};

inline Result<Curve> train_on_sim(const SimRun& run, SimWorld::Options options) {
  const Config config = run.config();
  const layout::ModelSpec spec = hf::configured_model(config, 40).value();
  std::unique_ptr<SimGroups> groups;
  Curve curve;
  std::map<std::string, std::vector<float>> whole;
  const auto one_rank = [&](int rank) -> Result<void> {
    if (groups == nullptr)  // the first rank to have the turn
      groups = std::make_unique<SimGroups>(run.setting.world_size,
                                           layout::shard_size(config, run.setting.world_size, 1));
    SimTrainee trainee(run, config, spec, *groups, rank);
    std::vector<std::string> lines;
    LOCKSTEP_RETURN_IF_ERROR(trainee.train(lines));
    if (rank == 0) curve.steps = std::move(lines);
    collect(trainee.model(), whole);
    return {};
  };
  LOCKSTEP_RETURN_IF_ERROR(on_sim(std::move(options), run.setting.world_size, one_rank));
  for (const auto& [name, values] : whole)
    curve.state.push_back(text(name, " ", hex64(xxh3_64(std::as_bytes(std::span(values))))));
  return curve;
}

}  // namespace lockstep::core
