#include "layout/step_time.h"

#include <map>
#include <utility>

#include "layout/exchange_plan.h"
#include "layout/fold_order.h"
#include "layout/muon_plan.h"
#include "layout/norm_tree.h"
#include "layout/round_plan.h"
#include "layout/shard_layout.h"
#include "layout/wrap.h"

namespace lockstep::layout {
namespace {

constexpr double kFp32_bytes = 4, kFp64_bytes = 8, kBf16_bytes = 2;
constexpr double kAddTile_s = 1.5e-9;  // sum_subtrees on the CPU, a tile of this rank
constexpr double kAddNode_s = 30e-9;   // NormTree::merge, a node that is told

// Sums of slots on rank 0, of `elements` each: FoldTree's kernels.
class Fold {
 public:
  Fold(int64_t elements, Reduction reduction) : elements_(elements), steps_(reduction) {}
  void push(const SlotRun& run) { steps_.push(run); }
  // `fp32`: what was pushed.
  void end_round(bool fp32, Operations& ops) {
    for (const FoldStep& step : steps_.end_round())
      add(step, fp32 ? kFp32_bytes : kBf16_bytes, ops);
  }
  void finish(Operations& ops) { add(steps_.finish(), kFp32_bytes, ops); }
  void clear() { steps_.clear(); }

 private:
  // Parts and sums are read once, and one sum is written.
  void add(const FoldStep& step, double part_bytes, Operations& ops) const {
    if (step.parts == 0 && step.sums == 0) return;
    const double parts = step.parts > 0 ? step.parts * part_bytes : kFp32_bytes;
    ops.push_back({.what = "sums of slots",
                   .bytes = as_double(elements_) * (parts + (step.sums + 1) * kFp32_bytes)});
  }
  int64_t elements_;
  FoldSteps steps_;
};

// A unit's parameters and gradients in flight.
struct UnitTime {
  UnitTime(const UnitSpec& unit, const Strategy& strategy)
      : spec(&unit),
        layout(strategy.layout_of(unit)),
        of_rank(layout.padded_elements(), Reduction::kTree),
        of_group(layout.joint_elements(), Reduction::kTree),
        of_all(layout.owned_elements(), strategy.reduction) {}
  const UnitSpec* spec;
  ShardLayout layout;
  bool gathered = false;
  bool joint_part_there = false;  // Strategy::keep_joint_part
  double gather_done = 0;
  const ExchangePlan* travelling = nullptr;
  bool second_leg = false;
  double exchange_done = 0;
  Fold of_rank, of_group, of_all;
};

class TimeWalk {
 public:
  TimeWalk(const Config& config, const ModelSpec& spec, const Strategy& strategy, int64_t per_node,
           const DeviceRates& rates)
      : config_(config),
        strategy_(strategy),
        rates_(rates),
        clocks_(rates),
        work_(config, spec, rates),
        stage_units_(stages_of(spec)),
        wrapped_(wrap(spec, config.parallelism.wrap_policy, config.parallelism.min_num_params)) {
    const int64_t w = strategy.map.world_size, g = strategy.sizes.group;
    world_ = {w, 1, per_node};
    group_ = {g, 1, per_node};
    peers_ = {w / g, g, per_node};
    std::vector<UnitPlace> places;
    for (const WrappedUnit& run : wrapped_) {
      units_.emplace_back(run.spec, strategy_);
      for (size_t i = 0; i < run.first_params.size(); ++i)
        places.push_back({static_cast<int>(units_.size()) - 1, run.spec.frozen});
    }
    round_ = RoundPlan::training(stage_units_, places, strategy_);
    std::vector<MuonUnit> updated;
    for (size_t i = 0; i < units_.size(); ++i) {
      if (units_[i].spec->frozen) continue;
      trained_.push_back(i);
      updated.push_back({units_[i].spec, units_[i].layout});
    }
    waves_ = muon_waves(updated, strategy_.muon, /*rank=*/0);
  }

  // TrainingStep::run
  StepTime step() {
    const int64_t rounds = strategy_.map.rounds();
    std::vector<ExchangePlan> exchanges;
    for (int64_t round = 0; round < rounds; ++round)
      exchanges.push_back(ExchangePlan::create(strategy_, round, strategy_.map.computing_rank()));
    for (const ExchangePlan& exchange : exchanges) train_slot(exchange);
    share_sums();
    fold_and_norm();
    for (const MuonWave& wave : waves_) update(wave);
    update_due();
    clocks_.wait_for_device(StepPhase::kUpdate);
    StepTime time;
    time.phases = clocks_.phases();
    time.received = clocks_.received();
    return time;
  }

 private:
  UnitTime& unit(int gathered) { return units_[static_cast<size_t>(gathered)]; }

  // Schedule::train_slot
  void train_slot(const ExchangePlan& exchange) {
    for (const RoundItem& item : round_.items) {
      for (const int u : item.gather) start_gather(unit(u));
      for (const int u : item.needed)
        clocks_.wait_until(StepPhase::kGatherWait, unit(u).gather_done);
      if (item.pass == Pass::kLoss) finish_exchanges();
      compute(item);
      for (const int u : item.gather_after) start_gather(unit(u));
      for (const int u : item.release) unit(u).gathered = false;
      for (const int u : item.finish) finish(unit(u));
      for (const int u : item.advance) advance(unit(u));
      for (const int u : item.start) start(unit(u), exchange);
    }
  }

  void start_gather(UnitTime& u) {
    if (strategy_.sizes.shard == 1 || u.gathered) return;
    u.gathered = true;
    const double bytes = as_double(u.layout.padded_elements() * strategy_.compute_bytes());
    if (strategy_.keep_joint_part && std::exchange(u.joint_part_there, true))
      u.gather_done = clocks_.start(StepPhase::kGatherWait, all_gather(bytes, group_, rates_));
    else
      u.gather_done = gather(StepPhase::kGatherWait, bytes, strategy_.sizes.shard, group_);
  }

  // `bytes` of `ranks` to each of them: of `one_leg`, or of all in two legs.
  double gather(StepPhase phase, double bytes, int ranks, const Members& one_leg) {
    if (ranks < strategy_.map.world_size || !strategy_.sizes.two_legs(strategy_.map.world_size))
      return clocks_.start(phase, all_gather(bytes, one_leg, rates_));
    clocks_.start(phase, all_gather(bytes / as_double(group_.count), peers_, rates_));
    return clocks_.start(phase, all_gather(bytes, group_, rates_));
  }

  void compute(const RoundItem& item) {
    const int64_t layer = static_cast<int64_t>(item.stage) - 1;
    switch (item.pass) {
      case Pass::kForward:
        return clocks_.compute(StepPhase::kForward, item.stage == 0 ? work_.embedding_forward()
                                                                    : work_.layer_forward(layer));
      case Pass::kLoss:
        clocks_.compute(StepPhase::kLoss, work_.head());
        return clocks_.wait_for_device(StepPhase::kLoss);  // HeadStage::run reads the losses
      case Pass::kBackward:
        if (item.stage == 0)
          return clocks_.compute(StepPhase::kBackward, work_.embedding_backward());
        clocks_.compute(StepPhase::kRecompute, work_.layer_again(layer));
        return clocks_.compute(StepPhase::kBackward, work_.layer_backward(layer));
    }
  }

  // GradExchange::start
  void start(UnitTime& u, const ExchangePlan& plan) {
    Operations ops;
    if (plan.sums_slots && plan.slot) u.of_rank.push({*plan.slot, 1});
    u.of_rank.end_round(!strategy_.bf16, ops);
    clocks_.compute(StepPhase::kFold, ops);
    if (!plan.travels) return;
    u.travelling = &plan;
    if (plan.sums_slots) u.of_rank.clear();
    if (plan.native) {
      const double bytes = 2 * as_double(u.layout.padded_elements()) * kFp32_bytes;
      clocks_.compute(StepPhase::kFold,
                      {{.what = "as fp32", .engine = Engine::kCopy, .bytes = 0.75 * bytes}});
      u.exchange_done = clocks_.start(StepPhase::kExchangeWait, all_gather(bytes, world_, rates_));
      return;
    }
    u.exchange_done = ship(plan.in_group, u.layout.joint_elements(), group_);
  }

  // Shipment::start: piece k of all members together.
  double ship(const Leg& leg, int64_t part_elements, const Members& members) {
    double done = 0;
    const double part = as_double(part_elements * leg.element_bytes());
    for (size_t k = 0; k < leg.buffers(); ++k) {
      int64_t senders = 0;
      for (size_t m = 0; m < leg.members(); ++m) senders += k < leg.of(m).size();
      done = clocks_.start(StepPhase::kExchangeWait, all_to_all(part, senders, members, rates_));
    }
    return done;
  }

  void advance(UnitTime& u) {
    if (u.travelling == nullptr || u.second_leg || !u.travelling->relays()) return;
    clocks_.wait_until(StepPhase::kExchangeWait, u.exchange_done);
    const ExchangePlan& plan = *u.travelling;
    Operations ops;
    for (size_t i = 0; plan.sums_in_group && i < plan.in_group.runs.size(); ++i)
      u.of_group.push(plan.in_group.runs[i]);
    u.of_group.end_round(plan.in_group.fp32, ops);
    clocks_.compute(StepPhase::kFold, ops);
    u.second_leg = true;
    if (!plan.crosses) return;
    u.of_group.clear();
    u.exchange_done = ship(plan.among_groups, u.layout.owned_elements(), peers_);
  }

  void finish(UnitTime& u) {
    if (u.travelling == nullptr) return;
    advance(u);
    const ExchangePlan& plan = *u.travelling;
    clocks_.wait_until(StepPhase::kExchangeWait, u.exchange_done);
    Operations ops;
    if (plan.native) {
      u.of_all.push(plan.round);
    } else if (plan.crosses) {
      for (const SlotRun& run : plan.last_leg().runs) u.of_all.push(run);
    }
    if (plan.crosses) u.of_all.end_round(plan.native || plan.last_leg().fp32, ops);
    clocks_.compute(StepPhase::kFold, ops);
    u.travelling = nullptr;
    u.second_leg = false;
  }

  void finish_exchanges() {
    for (const int u : round_.travelling) finish(unit(u));
  }

  void share_sums() {
    finish_exchanges();
    for (UnitTime& u : units_) u.gathered = u.joint_part_there = false;
    host_exchange(as_double(StepSums{strategy_.map}.words(world_.count)) * kFp64_bytes,
                  StepPhase::kOther);
  }

  // Over Gloo: `bytes` that come to one rank.
  void host_exchange(double bytes, StepPhase phase) {
    if (world_.count == 1) return;
    clocks_.wait(phase,
                 rates_.host_collective_us * 1e-6 + bytes / (rates_.host_network_gb_per_s * 1e9));
  }

  void fold_and_norm() {
    Operations ops;
    std::vector<ShardLayout> trained;
    for (UnitTime& u : units_) {
      if (u.spec->frozen) continue;
      trained.push_back(u.layout);
      u.of_all.finish(ops);
      const double bytes = 2 * kFp32_bytes * as_double(u.layout.owned_elements());
      ops.push_back({.what = "scaled, squares of tiles", .bytes = bytes});
      if (rates_.gpu() && !strategy_.offload)
        ops.push_back({.what = "digests of weights and gradients", .bytes = bytes});
    }
    const NormTree tree(std::move(trained));
    const double nodes = as_double(tree.heard(told_at_once(strategy_.sizes)));
    const double tiles = as_double(tree.tiles());
    if (rates_.gpu()) ops.push_back({.what = "sums of tiles", .bytes = tiles * kFp64_bytes});
    clocks_.compute(StepPhase::kNorm, ops);
    clocks_.wait_for_device(StepPhase::kNorm);
    if (!rates_.gpu()) clocks_.wait(StepPhase::kNorm, tiles * kAddTile_s);
    if (strategy_.sizes.two_legs(world_.count)) host_exchange(0, StepPhase::kNorm);  // among peers
    host_exchange(nodes * kFp64_bytes, StepPhase::kNorm);
    clocks_.wait(StepPhase::kNorm, nodes * kAddNode_s);
  }

  // Optimizer::update_wave
  void update(const MuonWave& wave) {
    for (size_t u = wave.first_unit; u < wave.end_unit; ++u) {
      start_whole_sum(trained_[u]);
      update(units_[trained_[u]]);
    }
    if (wave.matrices.empty()) return;
    exchange(wave.at_home);
    orthogonalize(wave);
    exchange(wave.own);
    for (size_t u = wave.first_unit; u < wave.end_unit && strategy_.copies() > 1; ++u) {
      if (!wave.has_matrices_of(u)) continue;
      const double bytes = as_double(units_[trained_[u]].layout.held_elements()) * kBf16_bytes;
      clocks_.wait_until(StepPhase::kUpdate,
                         gather(StepPhase::kUpdate, bytes, strategy_.copies(), peers_));
    }
  }

  // What rank 0 receives, as if each rank sent as much of it.
  void exchange(const MuonPieces& received) {
    const double part = as_double(received.elements()) * kBf16_bytes / as_double(world_.count);
    clocks_.wait_until(
        StepPhase::kUpdate,
        clocks_.start(StepPhase::kUpdate, all_to_all(part, world_.count, world_, rates_)));
  }

  // Of the rank with the most work, for which the others wait.
  void orthogonalize(const MuonWave& wave) {
    std::vector<Operations> of_rank(static_cast<size_t>(world_.count));
    std::vector<double> flops(of_rank.size(), 0.0);
    for (const MuonMatrix& m : wave.matrices) {
      const size_t home = static_cast<size_t>(m.home);
      const double square = as_double(m.short_side() * m.short_side());
      flops[home] += m.flops();
      of_rank[home].push_back({.what = "Newton-Schulz",
                               .engine = Engine::kProduct,
                               .width = 2,
                               .flops = m.flops() / as_double(kNewtonSchulzSteps),
                               .bytes = kBf16_bytes * (5 * as_double(m.elements()) + 7 * square),
                               .times = kNewtonSchulzSteps});
    }
    const auto most = std::max_element(flops.begin(), flops.end()) - flops.begin();
    clocks_.compute(StepPhase::kUpdate, of_rank[static_cast<size_t>(most)]);
  }

  // A copy of the state takes the whole sum; the next unit's travels already.
  void start_whole_sum(size_t i) {
    if (strategy_.copies() == 1) return;
    for (const size_t u : {i, i + 1}) {
      if (u >= units_.size() || u < next_sum_ || units_[u].spec->frozen) continue;
      const double bytes = as_double(units_[u].layout.held_elements()) * kFp32_bytes;
      units_[u].exchange_done = gather(StepPhase::kUpdate, bytes, strategy_.copies(), peers_);
      next_sum_ = u + 1;
    }
    clocks_.wait_until(StepPhase::kUpdate, units_[i].exchange_done);
  }

  void update(const UnitTime& u) {
    if (u.spec->frozen) return;
    const double held = as_double(u.layout.held_elements());
    if (strategy_.offload && rates_.gpu()) return update_on_host(held);
    const double muons =
        strategy_.muon
            ? as_double(muon_elements(*u.spec, segments_of(*u.spec, u.layout.first_held_tile(0),
                                                           u.layout.held_tile_count(0))))
            : 0.0;
    const double copy = strategy_.bf16 ? kBf16_bytes : 0.0;
    // Gradient, weights in and out; both moments in and out.
    due_bytes_ +=
        (3 * kFp32_bytes + 4 * as_double(strategy_.moment_bytes()) + copy) * (held - muons);
    if (strategy_.copies() > 1) update_due();
    // Momentum and direction; the update of the weights.
    if (muons > 0)
      clocks_.compute(StepPhase::kUpdate,
                      {{.what = "Muon",
                        .bytes = muons * (2.5 * kFp32_bytes + kBf16_bytes + copy / 2),
                        .times = 2}});
  }

  // One launch of AdamW.
  void update_due() {
    const double bytes = std::exchange(due_bytes_, 0.0);
    if (bytes > 0) clocks_.compute(StepPhase::kUpdate, {{.what = "AdamW", .bytes = bytes}});
  }

  // The gradient goes to the host, the copy in the compute type comes back; nothing overlaps.
  void update_on_host(double held) {
    const double moved = held * (kFp32_bytes + as_double(strategy_.compute_bytes()));
    const double bytes = 4.5 * kFp32_bytes + 4 * as_double(strategy_.moment_bytes());
    clocks_.wait(StepPhase::kUpdate, moved / (rates_.host_link_gb_per_s * 1e9) +
                                         bytes * held / (rates_.host_memory_gb_per_s * 1e9));
  }

  const Config& config_;
  Strategy strategy_;
  const DeviceRates& rates_;
  StepClocks clocks_;
  StageWork work_;
  std::vector<StageUnits> stage_units_;
  std::vector<WrappedUnit> wrapped_;
  std::vector<UnitTime> units_;
  RoundPlan round_;
  Members world_, group_, peers_;
  std::vector<size_t> trained_;  // of units_
  std::vector<MuonWave> waves_;  // of them
  size_t next_sum_ = 0;
  double due_bytes_ = 0;  // of elements that AdamW is to update
};

}  // namespace

int64_t Members::near() const {
  return std::clamp<int64_t>((per_node + stride - 1) / stride, 1, count);
}

Transfer all_gather(double bytes, const Members& m, const DeviceRates& rates) {
  if (m.count == 1) return {};
  const double received = bytes * as_double(m.count - 1) / as_double(m.count);
  const double far = bytes * as_double(m.count - m.near()) / as_double(m.count);
  const double per_rank = far / as_double(m.near());  // through its part of the node's network
  const double near = received - per_rank;
  return {std::max(received * (m.near() > 1) / (rates.node_gb_per_s * 1e9),
                   per_rank / (rates.network_gb_per_s * 1e9)),
          near, per_rank};
}

Transfer all_to_all(double part_bytes, int64_t senders, const Members& m,
                    const DeviceRates& rates) {
  if (m.count == 1) return {};
  const int64_t near_senders = std::min(senders, m.near());
  const double near = part_bytes * as_double(std::max<int64_t>(0, near_senders - 1)),
               far = part_bytes * as_double(senders - near_senders);
  return {std::max(near / (rates.node_gb_per_s * 1e9), far / (rates.network_gb_per_s * 1e9)), near,
          far};
}

StepTime plan_step_time(const Config& config, const ModelSpec& spec, const Ranks& ranks,
                        const DeviceRates& rates) {
  const int64_t per_node =
      ranks.per_node > 0 ? ranks.per_node : static_cast<int64_t>(rates.ranks_per_node);
  const Strategy strategy = Ranks{ranks.world_size, per_node}.strategy(config);
  StepTime time = TimeWalk(config, spec, strategy, per_node, rates).step();
  for (const PhaseTime& phase : time.phases) time.total_s += phase.seconds;
  const Config::Training& t = config.training;
  time.tokens_per_s = as_double(config.slots() * t.local_batch_size * t.seq_len) / time.total_s;
  time.tokens_per_s_rank = time.tokens_per_s / as_double(ranks.world_size);
  time.mfu =
      time.tokens_per_s_rank * spec.flops_per_token(t.seq_len) / (rates.bf16_peak_tflops * 1e12);
  return time;
}

}  // namespace lockstep::layout
