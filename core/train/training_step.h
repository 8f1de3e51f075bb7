// One optimizer step: V slots, one canonical gradient sum, one clip, one update. Owns the units
// and the schedule. Every method but the accessors is collective. Thread: the training thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "config/config.h"
#include "core/optim/optimizer.h"
#include "core/sharding/norm_sum.h"
#include "core/sharding/rank_sums.h"
#include "core/sharding/schedule.h"
#include "core/sharding/slot_audit.h"
#include "data/loader/token_dataset.h"
#include "hf/hf_weights.h"
#include "layout/wrap.h"

namespace lockstep::core {

struct StepOutcome {
  double loss = 0;       // sum over slots, in slot order, of fp64 loss sums / valid tokens
  double grad_norm = 0;  // before clipping
  int64_t valid_tokens = 0;
  bool updated = false;  // false: no valid token, or loss or norm not finite
  bool finite = true;
  std::optional<StepAudit> audit;  // where there was one
  StepDigests digests;             // where there was an update
  RankFlags any;                   // over all ranks, merged as its fields say
};

class TrainingStep {
 public:
  // `forward_only`: for evaluate, last_hidden and logits alone, without optimizer state.
  TrainingStep(const Config& config, const layout::ModelSpec& spec, const Groups& groups,
               bool forward_only = false);

  // Initial weights: this rank's tiles of `weights`, or, null, random by (seed, parameter name,
  // element index), as adapters' always are. Optimizer state zero. Errors: reading the weights.
  Result<void> initialize(const hf::HfWeights* weights);
  // The frozen units' part of it; checkpoints have nothing of theirs. The first call counts.
  Result<void> fill_frozen(const hf::HfWeights* weights);
  // After what this rank owns of what is trained was filled from outside (ShardState::host):
  // where the state is replicated, its other copies get it. Errors: communication.
  Result<void> take_loaded();
  // Brings ShardState::host up to date, for what is filled in part, or reads it.
  void pull_state();
  // Runs step `step` (1-based) with learning rate `lr`. `next_slot` gives this rank's slots in
  // order; `mine` is asked for this rank's flags when they are shared; `before_update` runs when
  // the state is about to change. With `slot_again`, which gives any slot of the step, the step and
  // the state at rest are audited before its update; where that finds a difference and audit.action
  // is not warn, the step ends there. Errors: communication, data.
  Result<StepOutcome> run(int64_t step, double lr, const std::function<RankFlags()>& mine,
                          const std::function<Result<data::SlotBatch>()>& next_slot,
                          const std::function<void()>& before_update,
                          const std::function<Result<data::SlotBatch>(int64_t)>& slot_again = {});
  // The same for a step that is left out: nothing is computed.
  Result<StepOutcome> pass_over(int64_t step, const RankFlags& mine);
  // Outside of a step.
  Result<RankFlags> share_flags(RankFlags mine);
  // Loss over `slots` held-out slots, slot s computed by rank s % W. `batch` gives one. `stop` is
  // asked before each round of W slots: nothing where any rank said yes. Collective.
  Result<std::optional<SlotLoss>> evaluate(
      int64_t slots, const std::function<Result<data::SlotBatch>(int64_t)>& batch,
      const std::function<bool()>& stop);
  // What the last block gives [B*T, D] for `tokens`, B rows of T. Requires W == 1.
  Result<at::Tensor> last_hidden(const std::vector<int64_t>& tokens);
  // Logits [R, V] fp32 of rows of it, on the host.
  at::Tensor logits(const at::Tensor& x_RD);
  // `tokens` are the next ones of sequences in `cache`, as `rows` says. Logits [sequences, V] fp32,
  // on the host, of each one's last token. On the CPU a sequence's bits do not depend on the other
  // ones, nor on how many of its tokens come at once (core/kernels/row_kernels.h). Requires W == 1.
  Result<at::Tensor> next_logits(KeyValueCache& cache, std::span<const NewTokens> rows,
                                 const std::vector<int64_t>& tokens);
  // For forward_only, once the weights are there: keeps of them only what computes.
  void drop_masters();

  // Of what the methods do; who calls them says where a step begins and ends.
  PhaseWatch& watch() { return watch_; }
  std::vector<std::unique_ptr<Unit>>& units() { return units_; }
  const SlotMap& slot_map() const { return strategy_.map; }
  size_t pool_bytes() const {
    return pools_.exchanged.allocated_bytes() + pools_.sums.allocated_bytes();
  }

 private:
  Result<void> fill(Unit& unit, const hf::HfWeights* weights);
  void refresh_copies();
  at::Tensor on_device(const std::vector<int64_t>& values, int64_t rows) const;
  SlotInput to_input(const data::SlotBatch& batch) const;
  Result<void> compute_slots(const std::function<Result<data::SlotBatch>()>& next_slot,
                             RankSums& sums, SlotDigests* first_round);
  Result<StepAudit> audit(const SlotDigests& computed,
                          const std::function<Result<data::SlotBatch>(int64_t)>& slot_again);
  void note_state_behind(int64_t step);
  Result<void> compute_slots_joined(const std::function<Result<data::SlotBatch>()>& next_slot,
                                    RankSums& sums);
  RankSums rank_sums() const { return {{strategy_.map}, comm_.rank()}; }
  Result<void> share_sums(RankSums& sums, const RankFlags& mine, StepOutcome& outcome);
  Result<double> fold_and_norm(float scale);

  const Config& config_;
  const layout::ModelSpec& spec_;
  Groups groups_;
  Communicator& comm_;  // all ranks
  Strategy strategy_;
  Pools pools_;
  PhaseWatch watch_;
  std::vector<layout::WrappedUnit> wrapped_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<Unit*> trained_;     // of them, those that are not frozen
  std::unique_ptr<NormSum> norm_;  // of the trained units
  std::unique_ptr<Optimizer> optimizer_;
  bool frozen_filled_ = false;
  std::vector<UnitPart> parts_;  // by unit of the model
  StageSequence model_;
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<SlotAudit> audit_;
  std::unique_ptr<StateAudit> state_audit_;
  std::vector<at::Tensor> folded_;  // by trained unit, until it was updated
};

}  // namespace lockstep::core
