// The small model of strategies.h, trained by ranks that are threads of a simulated machine.
#pragma once

#include "core/comm/device_communicator.h"
#include "core/train/state_pieces.h"
#include "tests/unit/core/sim_groups.h"
#include "tests/unit/core/strategies.h"

namespace lockstep::core {

// A run of the small model, and what it does beside training.
struct SimRun {
  Setting setting;
  int64_t steps = 2;
  Reduction reduction = Reduction::kTree;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  FloatType moments = FloatType::kFloat32;
  bool staged = false;     // collectives go through host memory
  bool evaluates = false;  // after every step
  // The state before the last step is saved under that step, as the trainer does it; behind it the
  // run goes back to it, and does the step again.
  bool goes_back = false;

  Config config() const {
    Config c = setting.config();
    c.training.reduction = reduction;
    c.optimizer.name = optimizer;
    c.optimizer.state_dtype = moments;
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
    if (run.staged) all = through_host(all, staged_);
    model_ = std::make_unique<TrainingStep>(config, spec, all);
  }
  TrainingStep& model() { return *model_; }
  const StepPhases& phases() const { return phases_; }  // of all steps

  // Adds what must not depend on a seed to `lines`.
  Result<void> train(std::vector<std::string>& lines) {
    LOCKSTEP_RETURN_IF_ERROR(model_->initialize(nullptr));
    live_ = LiveState::of(model_->units(), kBufferBytes);
    const int64_t alone = run_.goes_back ? run_.steps - 1 : run_.steps;
    for (int64_t step = 1; step <= alone; ++step) LOCKSTEP_RETURN_IF_ERROR(one_step(step, lines));
    if (!run_.goes_back) return {};
    LOCKSTEP_TRY(const auto before_last, save_under(run_.steps, lines));
    LOCKSTEP_RETURN_IF_ERROR(load(before_last));
    return one_step(run_.steps, lines);
  }

 private:
  static constexpr int64_t kBufferBytes = 16 << 10;  // the state takes several

  Result<void> one_step(int64_t step, std::vector<std::string>& lines) {
    const std::vector<int64_t> slots = model_->slot_map().slots_of(rank_);
    size_t next = 0;
    model_->watch().begin_step();
    LOCKSTEP_TRY(const StepOutcome outcome, model_->run(
                                                step, 1e-2, [] { return RankFlags{}; },
                                                [&]() -> Result<data::SlotBatch> {
                                                  return batch_of(config_, step, slots[next++]);
                                                },
                                                [&] { live_->thaw(); }));
    phases_.add(model_->watch().end_step());
    lines.push_back(line_of(outcome));
    if (!run_.evaluates) return {};
    LOCKSTEP_TRY(const auto loss, model_->evaluate(
                                      4,
                                      [&](int64_t slot) -> Result<data::SlotBatch> {
                                        return batch_of(config_, 100 + step, slot);
                                      },
                                      [] { return false; }));
    lines.push_back(text("evaluated ", hex_float(loss.value().sum)));
    return {};
  }
  // Does the step when all copies of the state before it are on their way, and takes the last of
  // them when its update is over: so late may a thread of its own be.
  Result<std::vector<std::byte>> save_under(int64_t step, std::vector<std::string>& lines) {
    std::vector<std::byte> saved;
    Result<void> done;
    checkpoint::StateSource::Reading reading;
    reading.take = [&](const checkpoint::StateSource::Part& part) -> Result<void> {
      saved.insert(saved.end(), part.bytes.begin(), part.bytes.end());
      return {};
    };
    reading.may_change = [&] {
      done = one_step(step, lines);
      sim_device().current_stream()->synchronize();
    };
    live_->freeze();
    LOCKSTEP_RETURN_IF_ERROR(live_->read(reading));
    if (!done.ok()) return done.error();
    return saved;
  }
  Result<void> load(std::span<const std::byte> saved) {
    for (const checkpoint::LiveTarget& target : owned_targets(model_->units(), false)) {
      std::copy_n(saved.begin(), target.bytes.size(), target.bytes.begin());
      saved = saved.subspan(target.bytes.size());
    }
    return model_->take_loaded();
  }

  const SimRun& run_;
  const Config& config_;
  int rank_;
  std::unique_ptr<SimGroups::OfRank> mine_;
  Staged staged_;
  std::unique_ptr<TrainingStep> model_;
  std::unique_ptr<LiveState> live_;
  StepPhases phases_;
};

inline Result<Curve> train_on_sim(const SimRun& run, SimWorld::Options options) {
  const Config config = run.config();
  const layout::ModelSpec spec = hf::configured_model(config, 40).value();
  std::unique_ptr<SimGroups> groups;
  Curve curve;
  std::map<std::string, std::vector<float>> whole;
  const auto one_rank = [&](int rank) -> Result<void> {
    if (groups == nullptr)  // the first rank to have the turn
      groups = std::make_unique<SimGroups>(
          run.setting.world_size,
          layout::group_sizes(config, run.setting.world_size, run.setting.ranks_of_node),
          run.setting.ranks_of_node);
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
