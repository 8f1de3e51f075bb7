#include "core/optim/optimizer.h"

#include <ATen/ops/empty.h>
#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/text.h"
#include "core/comm/word_merge.h"
#include "core/kernels/kernel_table.h"
#include "core/kernels/parallel.h"

namespace lockstep::core {
namespace {

constexpr int64_t kGrainTiles = 16;  // worth a thread's while
constexpr int64_t kDigestTiles = 4;

}  // namespace

// Replicated state is updated from the whole sum: the next unit's part travels meanwhile.
class Optimizer::WholeSums {
 public:
  WholeSums(const std::vector<Unit*>& units, const std::vector<at::Tensor>& owned, Gatherer& copies)
      : units_(units),
        owned_(owned),
        copies_(copies),
        whole_(units.size()),
        travelling_(units.size()) {
    start(0);
  }
  // Of the units in their order, once each.
  Result<at::Tensor> of(size_t i) {
    start(i + 1);
    if (copies_.world_size() == 1) return owned_[i];
    auto done = travelling_[i]->wait();
    if (!done.ok())
      return done.error().in(text("gathering the gradient sum of ", units_[i]->spec.name));
    travelling_[i].reset();  // it holds the whole sum, too
    return std::exchange(whole_[i], at::Tensor());
  }

 private:
  void start(size_t i) {
    if (copies_.world_size() == 1 || i >= units_.size()) return;
    whole_[i] = at::empty({units_[i]->layout.held_elements()}, owned_[i].options());
    travelling_[i] = copies_.all_gather(whole_[i], owned_[i], Traffic::kExchange);
  }

  const std::vector<Unit*>& units_;
  const std::vector<at::Tensor>& owned_;
  Gatherer& copies_;
  std::vector<at::Tensor> whole_;
  std::vector<PendingPtr> travelling_;
};

Optimizer::Optimizer(const Config& config, std::vector<Unit*> units, UnitDigests digests,
                     const Strategy& strategy, const Groups& groups, Pools& pools)
    : config_(config),
      units_(std::move(units)),
      digests_(std::move(digests)),
      strategy_(strategy),
      groups_(groups),
      muon_(units_, strategy, groups, pools.exchanged) {
  const auto seed = static_cast<uint64_t>(config.training.seed);
  for (const Unit* unit : units_) {
    moment_keys_.emplace_back();
    for (const layout::ParamSpec& param : unit->spec.params)
      moment_keys_.back().push_back(purpose_key(seed, "moments/" + param.name));
  }
}

// Elements [first, first + n) of a segment; `grad` is theirs. On the host they are updated, by any
// thread; on a device they are `due`.
template <typename Moment>
void Optimizer::update_adams(size_t unit, const Segment& s, int64_t first, int64_t n,
                             const float* grad, const AdamWStep& step,
                             std::vector<AdamWRun<Moment>>& due) {
  const ShardState& state = units_[unit]->state;
  const auto param = static_cast<size_t>(s.param);
  const int64_t at = s.range_offset + first;
  const AdamWRun<Moment> run{
      .grad = grad,
      .master = state.master_S.data_ptr<float>() + at,
      .m = static_cast<Moment*>(state.adam_m_S.data_ptr()) + at,
      .v = static_cast<Moment*>(state.adam_v_A.data_ptr()) + state.place_in_v(s.param, at),
      .copy = state.copy_beside(at),
      .n = n,
      .draw = {moment_keys_[unit][param], s.flat_start + first},
      .decays = units_[unit]->spec.params[param].decays()};
  if (!state.master_S.is_cpu()) return due.push_back(run);
  kernels_on(at::kCPU).adamw_update(step, std::span(&run, 1));
}

void Optimizer::update_due(const AdamWStep& step) {
  const Kernels& kernels = kernels_on(strategy_.state_device());
  if (!due_.empty()) kernels.adamw_update(step, std::span<const AdamWRun<float>>(due_));
  if (!due_bf16_.empty()) kernels.adamw_update(step, std::span<const AdamWRun<Bf16>>(due_bf16_));
  due_.clear();
  due_bf16_.clear();
}

void Optimizer::begin_digests(const std::vector<at::Tensor>& sums) {
  const at::Device device = strategy_.state_device();
  if (device.is_cpu()) return;
  int64_t segments = 0, at = 0;
  for (const Unit* unit : units_) segments += std::ssize(unit->state.owned_segments());
  device_digests_ = at::empty({2, segments}, at::TensorOptions(at::kLong).device(device));
  for (size_t u = 0; u < units_.size(); ++u) {
    const ShardState& state = units_[u]->state;
    std::vector<DigestRun> weights, gradients;
    for (const Segment& s : state.owned_segments()) {
      const uint64_t seed = digests_.seed(u, s.param, s.flat_start);
      weights.push_back({state.owned_offset() + s.range_offset, s.length, seed});
      gradients.push_back({s.range_offset, s.length, seed});
    }
    const int64_t count = std::ssize(weights);
    const Kernels& kernels = kernels_on(device);
    kernels.digest_runs(state.master_S, weights, device_digests_[0].narrow(0, at, count));
    kernels.digest_runs(sums[u], gradients, device_digests_[1].narrow(0, at, count));
    at += count;
  }
}

void Optimizer::read_digests() {
  if (!device_digests_.defined()) return;
  const at::Tensor host = std::exchange(device_digests_, at::Tensor()).cpu();
  const int64_t* weights = host.const_data_ptr<int64_t>();
  const int64_t* gradients = weights + host.size(1);
  for (size_t u = 0; u < units_.size(); ++u)
    for (const Segment& s : units_[u]->state.owned_segments())
      digests_.add(u, s.param, static_cast<uint64_t>(*weights++),
                   static_cast<uint64_t>(*gradients++));
}

// `grad`: of all that the unit holds, where its state lies; on a device update_due reads it. On the
// host digests are taken of what is owned here, a few tiles at a time, which a cache then has for
// the update.
void Optimizer::update_unit(size_t unit, const at::Tensor& grad, const AdamWStep& step) {
  ShardState& state = units_[unit]->state;
  const int64_t own_begin = state.owned_offset();
  const int64_t own_end = own_begin + units_[unit]->layout.owned_elements();
  for (const Segment& s : state.held_segments()) {
    const auto update_run = [&](int64_t first, int64_t n) {
      const int64_t at = s.range_offset + first;
      const float* const g = grad.data_ptr<float>() + at;
      const float* const master = state.master_S.data_ptr<float>() + at;
      const int64_t real_end = s.range_offset + std::min(first + n, s.length);  // padding behind it
      const int64_t begin = std::max(at, own_begin), end = std::min(real_end, own_end);
      if (grad.is_cpu() && begin < end) {
        const auto count = static_cast<size_t>(end - begin);
        const auto digest = [&](const float* from) {
          return digest_of_tiles(
              std::as_bytes(std::span(from + (begin - at), count)), sizeof(float),
              digests_.seed(unit, s.param, s.flat_start + begin - s.range_offset));
        };
        digests_.add(unit, s.param, digest(master), digest(g));
      }
      if (state.is_muons(s.param)) return muon_.take_gradient(unit, s.param, at, g, real_end - at);
      if (strategy_.bf16_moments)
        update_adams(unit, s, first, n, g, step, due_bf16_);
      else
        update_adams(unit, s, first, n, g, step, due_);
    };
    if (!grad.is_cpu()) {
      update_run(0, s.tiles * layout::kTileElements);
      continue;
    }
    parallel_ranges(s.tiles, kGrainTiles, [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; tile += kDigestTiles)
        update_run(tile * layout::kTileElements,
                   std::min(kDigestTiles, end - tile) * layout::kTileElements);
    });
  }
}

Result<void> Optimizer::update_wave(const layout::MuonWave& wave, WholeSums& sums,
                                    const AdamWStep& step, const MuonRate& rate) {
  muon_.begin(wave, rate);
  for (size_t i = wave.first_unit; i < wave.end_unit; ++i) {
    LOCKSTEP_TRY(const at::Tensor grad, sums.of(i));
    update_unit(i, grad.to(strategy_.state_device()), step);
    if (groups_.copies->world_size() > 1) update_due(step);  // the whole sum's memory goes
  }
  LOCKSTEP_RETURN_IF_ERROR(muon_.exchange());
  for (size_t i = wave.first_unit; i < wave.end_unit; ++i) {
    LOCKSTEP_RETURN_IF_ERROR(muon_.apply(i));
    if (units_[i]->state.copy_beside(0) == nullptr) units_[i]->state.refresh_copy();
  }
  muon_.end();
  return {};
}

Result<StepDigests> Optimizer::update(int64_t step, double lr, double clip,
                                      const std::vector<at::Tensor>& sums) {
  const Config::Optimizer& o = config_.optimizer;
  const AdamWStep adamw =
      AdamWStep::create(lr, o.beta1, o.beta2, o.eps, o.weight_decay, clip, step);
  WholeSums whole(units_, sums, *groups_.copies);
  digests_.clear();
  read_digests();
  for (const layout::MuonWave& wave : muon_.waves())
    LOCKSTEP_RETURN_IF_ERROR(
        update_wave(wave, whole, adamw, {lr, o.momentum, o.weight_decay, clip}));
  update_due(adamw);
  return share_digests();
}

// All ranks' added up.
Result<StepDigests> Optimizer::share_digests() {
  const std::vector<uint64_t> own = digests_.sums();
  const WordSum all(std::ssize(own));
  auto shared = MergedWords(*groups_.world, all, own).wait();
  if (!shared.ok()) return shared.error().in("sharing the step's digests");
  const std::vector<uint64_t>& sums = *shared;
  const auto half = sums.begin() + std::ssize(sums) / 2;
  return StepDigests{{sums.begin(), half}, {half, sums.end()}};
}

}  // namespace lockstep::core
