#include "core/train/training_step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/text.h"
#include "core/audit/bit_flip.h"
#include "core/comm/word_merge.h"
#include "core/device/devices.h"
#include "core/kernels/kernel_table.h"
#include "core/kernels/matmul.h"
#include "core/model/decoder.h"

namespace lockstep::core {
namespace {

std::span<double> doubles(const at::Tensor& t) {
  return {t.data_ptr<double>(), static_cast<size_t>(t.numel())};
}

std::vector<layout::ShardLayout> layouts_of(const std::vector<Unit*>& units) {
  std::vector<layout::ShardLayout> layouts;
  for (const Unit* unit : units) layouts.push_back(unit->layout);
  return layouts;
}

// The sites of bit flips in what this rank owns (core/audit/bit_flip.h), between two updates.
void flip_state(const std::vector<std::unique_ptr<Unit>>& units) {
  size_t site = 0, sites = 0;
  for (const auto& unit : units) sites += unit->state.owned_segments().size();
  for (const auto& unit : units) {
    const ShardState& state = unit->state;
    for (const Segment& s : state.owned_segments()) {
      const auto flip = [&](FlipIn where, const at::Tensor& tensor, int64_t at) {
        if (tensor.defined())
          flip_site(where, site, sites, tensor.narrow(0, at, s.length), unit->spec.name);
      };
      const int64_t at = state.owned_offset() + s.range_offset;
      flip(FlipIn::kWeight, state.master_S, at);
      flip(FlipIn::kMoment, state.adam_m_S, at);
      if (!state.is_muons(s.param))
        flip(FlipIn::kSecondMoment, state.adam_v_A, state.place_in_v(s.param, at));
      flip(FlipIn::kGiven, state.compute_S(), at);
      ++site;
    }
  }
}

}  // namespace

TrainingStep::TrainingStep(const Config& config, const layout::ModelSpec& spec,
                           const Groups& groups, bool forward_only)
    : config_(config),
      spec_(spec),
      groups_(groups),
      comm_(*groups.world),
      strategy_{layout::Strategy::create(config, groups.world->world_size(), groups.nodes),
                groups.device},
      pools_(groups.device),
      watch_(groups.device),
      wrapped_(
          layout::wrap(spec, config.parallelism.wrap_policy, config.parallelism.min_num_params)) {
  strategy_.forward_only = forward_only;
  for (const layout::WrappedUnit& run : wrapped_) {
    units_.push_back(std::make_unique<Unit>(run.spec, strategy_, groups, pools_));
    if (!run.spec.frozen) trained_.push_back(units_.back().get());
    for (size_t i = 0; i < run.first_params.size(); ++i)
      parts_.emplace_back(*units_.back(), run.first_params[i],
                          spec.units[static_cast<size_t>(run.first_unit) + i]);
  }
  norm_ = std::make_unique<NormSum>(layouts_of(trained_), groups);
  optimizer_ = std::make_unique<Optimizer>(config, trained_, UnitDigests(spec, wrapped_), strategy_,
                                           groups, pools_);
  model_ = make_decoder(spec, DecoderOptions::create(config, strategy_.compute(), groups.device));
  schedule_ = std::make_unique<Schedule>(parts_, model_, strategy_, comm_.rank(), watch_);
  audit_ = std::make_unique<SlotAudit>(comm_, strategy_.map, groups.nodes.most,
                                       schedule_->exchanged_units());
  state_audit_ = std::make_unique<StateAudit>(units_, groups_);
}

Result<void> TrainingStep::initialize(const hf::HfWeights* weights) {
  LOCKSTEP_RETURN_IF_ERROR(fill_frozen(weights));
  for (Unit* unit : trained_) {
    // A load that failed half-way may have been here: what it left on the host goes first.
    unit->state.push();
    for (const at::Tensor& moment : {unit->state.adam_m_S, unit->state.adam_v_A})
      if (moment.defined()) moment.zero_();
    LOCKSTEP_RETURN_IF_ERROR(fill(*unit, spec_.adapted() ? nullptr : weights));
  }
  refresh_copies();
  return {};
}

// One after the other: of one alone the fp32 form exists beside the copy.
Result<void> TrainingStep::fill_frozen(const hf::HfWeights* weights) {
  if (std::exchange(frozen_filled_, true)) return {};
  for (auto& unit : units_) {
    if (!unit->spec.frozen) continue;
    unit->state.make_master();
    LOCKSTEP_RETURN_IF_ERROR(fill(*unit, weights));
    unit->state.refresh_copy();
  }
  return {};
}

// Where the state lies: a GPU draws its weights, and those of a folder pass through host memory one
// after the other.
Result<void> TrainingStep::fill(Unit& unit, const hf::HfWeights* weights) {
  const uint64_t seed = static_cast<uint64_t>(config_.training.seed);
  const bool broken = config_.debug.break_rule == BrokenRule::kRule6;  // draw by place in the shard
  for (const Segment& s : unit.state.held_segments()) {
    const layout::ParamSpec& param = unit.spec.params[static_cast<size_t>(s.param)];
    const at::Tensor out = unit.state.master_S.narrow(0, s.range_offset, s.length);
    if (weights == nullptr) {
      initialize_parameter(param, seed, broken ? 0 : s.flat_start, out);
      continue;
    }
    const at::Tensor read = out.is_cpu() ? out : at::empty({s.length}, at::kFloat);
    const std::span<float> floats(read.data_ptr<float>(), static_cast<size_t>(s.length));
    LOCKSTEP_RETURN_IF_ERROR(weights->read(param.name, s.flat_start, floats));
    if (!out.is_cpu()) out.copy_(read);
  }
  return {};
}

Result<void> TrainingStep::take_loaded() {
  for (Unit* unit : trained_) {
    unit->state.push();
    auto done = unit->state.gather_copies(*groups_.copies);
    if (!done.ok())
      return done.error().in(text("broadcasting what was loaded of ", unit->spec.name));
  }
  refresh_copies();
  return {};
}

void TrainingStep::refresh_copies() {
  for (Unit* unit : trained_) unit->state.refresh_copy();
  state_audit_->forget();
  if (config_.audit.interval > 0 && !strategy_.forward_only) state_audit_->note();
}

void TrainingStep::pull_state() {
  for (Unit* unit : trained_) unit->state.pull();
}

at::Tensor TrainingStep::on_device(const std::vector<int64_t>& values, int64_t rows) const {
  const int64_t columns = static_cast<int64_t>(values.size()) / rows;
  const Device& device = device_of(strategy_.device);
  const at::Tensor host = device.host_tensor({rows, columns}, at::kLong);
  std::copy(values.begin(), values.end(), host.data_ptr<int64_t>());
  return device.copy_of(host, strategy_.device);
}

SlotInput TrainingStep::to_input(const data::SlotBatch& batch) const {
  const int64_t t = config_.training.seq_len, rows = static_cast<int64_t>(batch.tokens.size()) / t;
  const double slot_tokens = static_cast<double>(config_.training.local_batch_size * t);
  std::span<const int64_t> starts;  // empty: of the sequences alone
  if (config_.data.document_mask) starts = batch.document_starts;
  return {on_device(batch.tokens, rows),
          on_device(batch.labels, rows),
          1.0 / slot_tokens,
          batch.step,
          batch.slot,
          starts};
}

Result<void> TrainingStep::compute_slots(const std::function<Result<data::SlotBatch>()>& next_slot,
                                         RankSums& sums, SlotDigests* first_round) {
  if (config_.debug.break_rule == BrokenRule::kRule1 && comm_.world_size() == 1)
    return compute_slots_joined(next_slot, sums);
  for (int64_t round = 0; round < strategy_.map.rounds(); ++round) {
    const std::optional<int64_t> slot = strategy_.map.slot(round, comm_.rank());
    std::optional<SlotInput> input;
    if (slot) {
      Result<data::SlotBatch> next = [&] {
        const PhaseSpan time(watch_, StepPhase::kDataWait);
        return next_slot();
      }();
      LOCKSTEP_TRY(const data::SlotBatch batch, std::move(next));
      LOCKSTEP_CHECK(batch.slot == *slot, "slot ", batch.slot, " in round ", round);
      input = to_input(batch);
      sums.set_valid_tokens(*slot, batch.valid_tokens);
    }
    SlotDigests* const digests = round == 0 ? first_round : nullptr;
    LOCKSTEP_TRY(const double loss,
                 schedule_->train_slot(input, round, digests,
                                       /*audits_exchange=*/first_round != nullptr));
    if (slot) sums.set_loss(*slot, loss);
    if (slot && digests != nullptr)
      digests->insert(digests->begin(), std::bit_cast<uint64_t>(loss));
  }
  return {};
}

// Its gathers and computing are the audit's time alone, and one span.
Result<StepAudit> TrainingStep::audit(
    const SlotDigests& computed,
    const std::function<Result<data::SlotBatch>(int64_t)>& slot_again) {
  const PhaseSpan time(watch_, StepPhase::kAudit);
  const auto again = [&](const std::optional<int64_t>& slot) -> Result<SlotDigests> {
    std::optional<SlotInput> input;
    if (slot) {
      LOCKSTEP_TRY(const data::SlotBatch batch, slot_again(*slot));
      input = to_input(batch);
    }
    SlotDigests digests;
    LOCKSTEP_TRY(const double loss, schedule_->audit_slot(input, digests));
    if (slot) digests.insert(digests.begin(), std::bit_cast<uint64_t>(loss));
    return digests;
  };
  const int64_t one = config_.audit.slot;
  LOCKSTEP_TRY(const StepAudit computing,
               one < 0 ? audit_->run(computed, again) : audit_->run_one(one, again));
  LOCKSTEP_TRY(const StepAudit state, state_audit_->run(schedule_->take_received()));
  return joined(computing, state);
}

// debug.break_rule = 1: all slots of the step as one batch, where one rank has them all.
Result<void> TrainingStep::compute_slots_joined(
    const std::function<Result<data::SlotBatch>()>& next_slot, RankSums& sums) {
  data::SlotBatch joined;
  for (int64_t slot = 0; slot < config_.slots(); ++slot) {
    LOCKSTEP_TRY(data::SlotBatch batch, next_slot());
    for (const int64_t start : batch.document_starts)
      joined.document_starts.push_back(static_cast<int64_t>(joined.tokens.size()) + start);
    joined.tokens.insert(joined.tokens.end(), batch.tokens.begin(), batch.tokens.end());
    joined.labels.insert(joined.labels.end(), batch.labels.begin(), batch.labels.end());
    joined.valid_tokens += batch.valid_tokens;
  }
  LOCKSTEP_TRY(const double loss, schedule_->train_slot(to_input(joined), 0));
  sums.set_loss(0, loss);
  sums.set_valid_tokens(0, joined.valid_tokens);
  return {};
}

Result<void> TrainingStep::share_sums(RankSums& sums, const RankFlags& mine, StepOutcome& outcome) {
  sums.set_flags(mine);
  sums.share(comm_);
  LOCKSTEP_RETURN_IF_ERROR(schedule_->finish_step());
  {
    const PhaseSpan time(watch_, StepPhase::kShareWait);
    if (auto done = sums.wait(); !done.ok()) return done.error().in("sharing the step's losses");
  }
  const SlotLoss total = sums.total();
  outcome.any = sums.flags();
  outcome.valid_tokens = total.valid_tokens;
  outcome.loss = total.valid_tokens > 0 ? total.sum / static_cast<double>(total.valid_tokens) : 0.0;
  outcome.finite = std::isfinite(outcome.loss);
  return {};
}

Result<RankFlags> TrainingStep::share_flags(RankFlags mine) {
  RankSums nothing = rank_sums();
  StepOutcome outcome;
  LOCKSTEP_RETURN_IF_ERROR(share_sums(nothing, mine, outcome));
  return outcome.any;
}

// Folds every unit, scales, and returns the gradient norm (layout/norm_tree.h).
Result<double> TrainingStep::fold_and_norm(float scale) {
  const layout::NormTree& tree = norm_->tree();
  const auto doubles_there = at::TensorOptions(at::kDouble).device(strategy_.device);
  const at::Tensor squares = at::empty({tree.tiles()}, doubles_there);
  int64_t at_tile = 0;
  LOCKSTEP_CHECK(folded_.empty(), folded_.size(), " sums are left of the step before");
  const bool joined = config_.debug.break_rule == BrokenRule::kRule1;  // all slots as one
  for (Unit* unit : trained_) {
    const SlotRun summed = unit->grads.summed_slots();
    LOCKSTEP_CHECK(joined || summed == (SlotRun{0, strategy_.map.slots}), unit->spec.name,
                   ": slots ", summed.first, " to ", summed.end(), " are in the sum, of ",
                   strategy_.map.slots);
    folded_.push_back(unit->grads.folded());
    const at::Tensor& grad = folded_.back();
    flip_site(FlipIn::kGradientSum, folded_.size() - 1, trained_.size(), grad, unit->spec.name);
    kernels_on(grad).scale_and_square_tiles(grad.data_ptr<float>(), scale,
                                            unit->layout.tiles_per_rank,
                                            squares.data_ptr<double>() + at_tile);
    at_tile += unit->layout.tiles_per_rank;
  }
  LOCKSTEP_CHECK(at_tile == tree.tiles(), at_tile, " tiles have a sum of squares, of ",
                 tree.tiles());
  at::Tensor in = at::zeros({tree.width()}, doubles_there);
  kernels_on(in).sum_subtrees(squares, tree.own_nodes(comm_.rank()), in);
  optimizer_->begin_digests(folded_);
  in = in.cpu();
  if (config_.debug.break_rule ==
      BrokenRule::kRule5) {  // one fp32 sum a rank: its grouping depends on W
    const double sum = in.to(at::kFloat).sum().item<double>();
    in.zero_();
    in.data_ptr<double>()[0] = sum;
  }
  const std::span<const double> row = doubles(in);
  auto sum = norm_->total({row.begin(), row.end()});
  if (!sum.ok()) return sum.error().in("sharing the tiles' norms");
  return std::sqrt(*sum);
}

Result<StepOutcome> TrainingStep::run(
    int64_t step, double lr, const std::function<RankFlags()>& mine,
    const std::function<Result<data::SlotBatch>()>& next_slot,
    const std::function<void()>& before_update,
    const std::function<Result<data::SlotBatch>(int64_t)>& slot_again) {
  LOCKSTEP_CHECK(step >= 1 && folded_.empty() && !strategy_.forward_only, "step ", step,
                 " begins with ", folded_.size(), " sums");
  StepOutcome outcome;
  RankSums sums = rank_sums();
  SlotDigests computed;
  flips_in_step(step, comm_.rank());
  LOCKSTEP_RETURN_IF_ERROR(compute_slots(next_slot, sums, slot_again ? &computed : nullptr));
  if (slot_again) {
    LOCKSTEP_TRY(outcome.audit, audit(computed, slot_again));
    if (!outcome.audit->verdict.same && config_.audit.action != AuditAction::kWarn) return outcome;
  }
  if (const auto& broken = config_.debug.nan_steps;
      std::find(broken.begin(), broken.end(), step) != broken.end())
    for (const int64_t slot : strategy_.map.slots_of(comm_.rank()))
      sums.set_loss(slot, std::nan(""));
  LOCKSTEP_RETURN_IF_ERROR(share_sums(sums, mine(), outcome));
  const double slot_tokens =
      static_cast<double>(config_.training.local_batch_size * config_.training.seq_len);
  const double scale =
      outcome.valid_tokens > 0 ? slot_tokens / static_cast<double>(outcome.valid_tokens) : 0.0;
  {
    const PhaseSpan time(watch_, StepPhase::kFold);
    LOCKSTEP_TRY(outcome.grad_norm, fold_and_norm(static_cast<float>(scale)));
  }
  outcome.finite = outcome.finite && std::isfinite(outcome.grad_norm);
  {
    const PhaseSpan time(watch_, StepPhase::kStall);
    before_update();
  }
  if (outcome.finite && outcome.valid_tokens > 0) {
    const PhaseSpan time(watch_, StepPhase::kUpdate);
    const double max_norm = config_.training.max_norm;
    const double clip = max_norm > 0 ? std::min(1.0, max_norm / (outcome.grad_norm + 1e-6)) : 1.0;
    LOCKSTEP_CHECK(folded_.size() == trained_.size() && clip >= 0 && clip <= 1, folded_.size(),
                   " sums for ", trained_.size(), " units, clipped to ", clip);
    state_audit_->forget();
    LOCKSTEP_TRY(outcome.digests, optimizer_->update(step, lr, clip, folded_));
    outcome.updated = true;
  }
  for (at::Tensor& sum : folded_) pools_.sums.give_tensor(sum);
  folded_.clear();
  note_state_behind(step);
  flip_state(units_);
  return outcome;
}

// Rule 1 of core/audit/state_verdict.h, where the next step is audited. Local.
void TrainingStep::note_state_behind(int64_t step) {
  if (!audits_step(config_.audit.interval, step + 1)) return;
  const PhaseSpan time(watch_, StepPhase::kAudit, "note");
  state_audit_->note();
}

// The update before may have been some steps ago, and nobody noted then what the next step audits.
Result<StepOutcome> TrainingStep::pass_over(int64_t step, const RankFlags& mine) {
  LOCKSTEP_CHECK(step >= 1 && folded_.empty(), "step ", step, " is left out with ", folded_.size(),
                 " sums");
  StepOutcome outcome;
  outcome.loss = outcome.grad_norm = std::nan("");
  outcome.finite = false;
  flips_in_step(step, comm_.rank());
  note_state_behind(step);
  LOCKSTEP_TRY(outcome.any, share_flags(mine));
  flip_state(units_);
  return outcome;
}

Result<std::optional<SlotLoss>> TrainingStep::evaluate(
    int64_t slots, const std::function<Result<data::SlotBatch>(int64_t)>& batch,
    const std::function<bool()>& stop) {
  const int w = comm_.world_size(), rank = comm_.rank();
  RankSums sums({{.slots = slots, .world_size = w, .group = w}, /*flags=*/0}, rank);
  for (int64_t slot = rank; slot < (slots + w - 1) / w * w; slot += w) {
    const auto stopped = any_says(comm_, stop());
    if (!stopped.ok()) return stopped.error().in("asking whether to stop");
    if (stopped.value()) {
      schedule_->release_all();
      return std::optional<SlotLoss>();
    }
    std::optional<SlotInput> input;
    if (slot < slots) {
      LOCKSTEP_TRY(data::SlotBatch one, batch(slot));
      input = to_input(one);
      sums.set_valid_tokens(slot, one.valid_tokens);
    }
    LOCKSTEP_TRY(const double loss, schedule_->evaluate_slot(input));
    if (input) sums.set_loss(slot, loss);
  }
  sums.share(comm_);
  if (auto done = sums.wait(); !done.ok()) return done.error().in("sharing validation losses");
  schedule_->release_all();
  return std::optional<SlotLoss>(sums.total());
}

Result<at::Tensor> TrainingStep::last_hidden(const std::vector<int64_t>& tokens) {
  LOCKSTEP_CHECK(comm_.world_size() == 1, "on one rank");
  const int64_t rows = static_cast<int64_t>(tokens.size()) / config_.training.seq_len;
  return schedule_->forward_only({on_device(tokens, rows), {}, /*gradient=*/0.0});
}

Result<at::Tensor> TrainingStep::next_logits(KeyValueCache& cache, std::span<const NewTokens> rows,
                                             const std::vector<int64_t>& tokens) {
  LOCKSTEP_CHECK(comm_.world_size() == 1, "on one rank");
  const RowByRow products;
  const at::Tensor positions = on_device(cache.begin(rows), 1).view({-1});
  LOCKSTEP_CHECK(positions.numel() == std::ssize(tokens), positions.numel(), " positions of ",
                 tokens.size(), " tokens");
  LOCKSTEP_TRY(const at::Tensor x_RD,
               schedule_->forward_only({on_device(tokens, 1), positions, cache}));
  std::vector<int64_t> last;
  for (int64_t row = -1; const NewTokens& each : rows) last.push_back(row += each.count);
  return logits(x_RD.index_select(0, on_device(last, 1).view({-1})));
}

void TrainingStep::drop_masters() {
  LOCKSTEP_CHECK(strategy_.forward_only, "a run that trains needs its weights");
  for (auto& unit : units_) unit->state.drop_master();
}

at::Tensor TrainingStep::logits(const at::Tensor& x_RD) {
  std::vector<UnitPart> head;
  for (int u : model_.units.back().units) head.push_back(parts_[static_cast<size_t>(u)]);
  return logits_of(spec_, head, x_RD).cpu();
}

}  // namespace lockstep::core
