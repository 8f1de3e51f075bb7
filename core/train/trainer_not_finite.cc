// A step whose loss or gradient norm is not finite: stop, or go back and leave it out.
//
//   roll_back  1. every save in flight ends; 2. the step joins the skip list; 3. the newest
//              committed checkpoint, or the initial weights, in this process; 4. the loader starts
//              behind it. The steps that follow are done again, and repeat their logged losses; the
//              listed one consumes its slots and changes nothing.
//
// A kill anywhere in between loses at most the list: the step is then met again.
#include <algorithm>

#include "base/log.h"
#include "core/train/trainer.h"

namespace lockstep::core {
namespace {

// Steps that a run may leave out: more of them mean that something else is wrong.
constexpr size_t kMaxLeftOut = 16;

}  // namespace

bool Trainer::left_out(int64_t step) const {
  return std::binary_search(state_.skip_list.begin(), state_.skip_list.end(), step);
}

Result<void> Trainer::leave_out(StepRecord& record) {
  for (size_t left = step_->slot_map().slots_of(rank()).size(); left > 0; --left)
    LOCKSTEP_RETURN_IF_ERROR(loader_->next());
  StepOutcome& outcome = record.outcome;
  LOCKSTEP_TRY(outcome.any, step_->share_flags(my_flags()));
  outcome.loss = outcome.grad_norm = std::nan("");
  outcome.finite = false;
  record.skipped = "left out";
  if (rank() == 0)
    log_warning("step ", record.step, " is left out: it is on the skip list (",
                state_.skip_list.size(), " of at most ", kMaxLeftOut, ")");
  return {};
}

Result<void> Trainer::roll_back(const StepRecord& record) {
  if (state_.skip_list.size() >= kMaxLeftOut)
    return stop_not_finite(record, text(kMaxLeftOut,
                                        " steps are left out already, and more are "
                                        "not: lower optimizer.lr, or look at the data"));
  if (engine_) engine_->drain();
  take_reports();
  env_.progress.set_phase(record.step, Phase::kLoad);
  ++rollbacks_;
  std::vector<int64_t> skip_list = std::move(state_.skip_list);
  skip_list.insert(std::lower_bound(skip_list.begin(), skip_list.end(), record.step), record.step);
  Resumed found;
  if (engine_) {
    const ResumeOptions disk_only{nullptr, resumed_.nonce, resumed_.next_generation, rollbacks_};
    LOCKSTEP_TRY(found, resume_newest(env_.file_system, config_, disk_only, *env_.membership.store,
                                      *env_.membership.communicator, *step_));
  }
  if (found.from.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(start_from_nothing());
  } else {
    state_ = found.state;
    step_->refresh_compute_copies();
    saved_step_ = state_.step;
  }
  adopt_identity();
  state_.skip_list = std::move(skip_list);
  start_loader();
  if (rank() == 0)
    log_error("step ", record.step, ": loss ", record.outcome.loss, ", gradient norm ",
              record.outcome.grad_norm, ": not finite; rolled back to step ", state_.step, " (",
              found.from.empty() ? "the initial weights" : found.from, "); step ", record.step,
              " will be left out");
  if (record_) record_->set_skip_list(state_.skip_list, rollbacks_);
  return {};
}

// The state of the step before is intact: it is saved, and the run ends.
Result<void> Trainer::stop_not_finite(const StepRecord& record, const std::string& advice) {
  if (engine_ && state_.step > 0 && saved_step_ != state_.step) {
    engine_->drain();
    take_reports();
    if (saved_step_ != state_.step) LOCKSTEP_RETURN_IF_ERROR(begin_save(/*ephemeral=*/false));
    engine_->drain();
    take_reports();
  }
  const bool saved = engine_ && state_.step > 0 && saved_step_ == state_.step;
  return Error{Code::kNotFinite,
               text("step ", record.step, ": loss ", record.outcome.loss, ", gradient norm ",
                    record.outcome.grad_norm, ": not finite; the update was not made and step ",
                    state_.step, saved ? " is saved" : " is not saved", ". ", advice)};
}

}  // namespace lockstep::core
