// Runs the rounds of a step: carries out a RoundPlan (layout/round_plan.h), an explicit schedule
// without hooks, with the model's stages and units.
//
// Stages share a unit where a wrap policy joined theirs: it is gathered for the first of them and
// exchanged after the last. A rank without a slot in a round takes part in the same collectives
// and computes nothing.
// Borrows units, stages and the watch. Thread: the training thread.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/device/phase_watch.h"
#include "core/sharding/stage.h"
#include "core/sharding/state_audit.h"
#include "layout/round_plan.h"

namespace lockstep::core {

class Schedule {
 public:
  // `parts`: by unit of the model.
  Schedule(std::vector<UnitPart> parts, StageSequence& model, const Strategy& strategy, int rank,
           PhaseWatch& watch);

  // One round: this rank's slot (none: idle). Returns the sum of its valid tokens' losses.
  // `digests` gets those of the slot's gradients, in the order of exchanged_units(); null: none,
  // and what is gathered is not audited. `audits_exchange`: the exchanges that it begins are.
  // Collective. Errors: Pending::wait's.
  Result<double> train_slot(const std::optional<SlotInput>& slot, int64_t round,
                            std::vector<uint64_t>* digests = nullptr, bool audits_exchange = false);
  // The same round for any slot, of which only the digests are wanted: nothing travels. Collective.
  // Errors: Pending::wait's.
  Result<double> audit_slot(const std::optional<SlotInput>& slot, std::vector<uint64_t>& digests);
  // What audited rounds have gathered since the last call, as it was when it was freed, or is now.
  std::vector<ReceivedUnit> take_received();
  // The units' names, as their gradients are ready.
  std::vector<std::string> exchanged_units() const;
  // After the step's last round: waits for exchanges under way and releases what the strategy kept
  // gathered; before the folds are read. Collective.
  Result<void> finish_step();
  // Forward and loss only. Collective.
  Result<double> evaluate_slot(const std::optional<SlotInput>& slot);
  // Forward of the stages before the loss, for generation; the head's units are gathered on return.
  Result<at::Tensor> forward_only(const SlotInput& slot);
  // Frees what the strategy kept gathered, and forgets what it kept in the node.
  void release_all();

 private:
  // What goes from item to item.
  struct Flow {
    at::Tensor x, dx;
    double loss = 0;
  };
  Unit& unit(int gathered) { return *units_[static_cast<size_t>(gathered)]; }
  const std::string& name_of(const layout::RoundItem& item) const;
  PhaseSpan span(StepPhase phase, const std::string& part) { return {watch_, phase, part}; }
  Result<void> enter(const layout::RoundItem& item);
  void flip_gathered(int gathered) const;
  void compute(const layout::RoundItem& item, const SlotInput& slot, bool train, Flow& flow);
  void release(const layout::RoundItem& item, bool audited = false);
  void note_received(int gathered);
  Result<void> exchange(const layout::RoundItem& item, std::vector<uint64_t>* digests,
                        bool audited);
  // `leave`: what becomes of an item's gradients.
  Result<double> train_round(const std::optional<SlotInput>& slot, bool audited,
                             const std::function<Result<void>(const layout::RoundItem&)>& leave);
  Result<void> finish_exchanges();

  std::vector<Unit*> units_;                   // as they are gathered
  std::vector<std::vector<UnitPart>> stages_;  // what each stage computes with
  StageSequence& model_;
  Strategy strategy_;
  int rank_;
  int64_t next_round_ = 0;  // of the step
  layout::RoundPlan training_, evaluation_;
  std::shared_ptr<const layout::ExchangePlan> exchange_;  // of the round
  std::vector<ReceivedUnit> received_;
  PhaseWatch& watch_;
};

}  // namespace lockstep::core
