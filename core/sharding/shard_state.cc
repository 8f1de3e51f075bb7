#include "core/sharding/shard_state.h"

#include <ATen/ops/zeros.h>

#include "base/check.h"
#include "core/device/devices.h"
#include "core/kernels/kernel_table.h"
#include "layout/muon_plan.h"

namespace lockstep::core {
namespace {

// `master` in the copy's type, where the copy lies.
void update_copy(at::Tensor& copy, const at::Tensor& master) {
  if (copy.device() == master.device()) return kernels_on(copy).narrow(copy, master);
  at::Tensor on_host = master;
  if (copy.scalar_type() != at::kFloat) {
    on_host = device_of(copy.device()).host_tensor({master.numel()}, copy.scalar_type());
    kernels_on(on_host).narrow(on_host, master);
  }
  copy.copy_(on_host);
}

}  // namespace

ShardState::ShardState(const layout::UnitSpec& spec, const ShardLayout& layout,
                       const Strategy& strategy, int rank)
    : strategy_(strategy),
      frozen_(spec.frozen),
      held_elements_(layout.held_elements()),
      owned_offset_(layout.owned_offset(rank)),
      held_segments_(segments_of(spec, layout.first_held_tile(rank), layout.held_tile_count(rank))),
      owned_segments_(segments_of(spec, layout.first_tile(rank), layout.tile_count(rank))),
      muons_(spec.params.size(), false),
      muons_before_(spec.params.size(), 0) {
  LOCKSTEP_CHECK(layout.owner_of(layout.part_of(rank)) == rank, "rank ", rank, " owns part ",
                 layout.part_of(rank), ", which is rank ", layout.owner_of(layout.part_of(rank)),
                 "'s");
  LOCKSTEP_CHECK(owned_offset_ >= 0 && owned_offset_ + layout.owned_elements() <= held_elements_,
                 spec.name, ": the owned part at ", owned_offset_, " does not lie in ",
                 held_elements_, " held elements");
  for (size_t i = 0; strategy.muon && i < muons_.size(); ++i)
    muons_[i] = layout::is_muons(spec.params[i]);
  int64_t muons = 0;
  for (const Segment& s : held_segments_) {
    muons_before_[static_cast<size_t>(s.param)] = muons;
    if (is_muons(s.param)) muons += s.tiles * layout::kTileElements;
  }
  const layout::ShardTensors kept =
      strategy.tensors_of(frozen_, strategy.state_device() != strategy.device);
  if (kept.master) make_master();
  if (kept.optimizer) {
    const at::ScalarType moments = strategy.bf16_moments ? at::kBFloat16 : at::kFloat;
    adam_m_S = zeros(held_elements_, moments);
    adam_v_A = zeros(held_elements_ - muons, moments);
  }
  if (kept.copy)
    copy_S_ =
        at::zeros({held_elements_}, at::TensorOptions(strategy.compute()).device(strategy.device));
}

at::Tensor ShardState::zeros(int64_t elements, at::ScalarType type) const {
  if (strategy_.state_device() == strategy_.device)
    return at::zeros({elements}, at::TensorOptions(type).device(strategy_.device));
  return device_of(strategy_.device).host_tensor({elements}, type).zero_();
}

void ShardState::make_master() {
  if (!master_S.defined()) master_S = zeros(held_elements_, at::kFloat);
}

Bf16* ShardState::copy_beside(int64_t at) const {
  if (!copy_S_.defined() || copy_S_.device() != master_S.device()) return nullptr;
  return reinterpret_cast<Bf16*>(copy_S_.data_ptr<at::BFloat16>()) + at;
}

void ShardState::refresh_copy() {
  LOCKSTEP_CHECK(!copy_S_.defined() || (master_S.defined() && master_S.numel() == copy_S_.numel()),
                 "a copy of ", copy_S_.numel(), " elements of weights that are not there");
  if (copy_S_.defined()) update_copy(copy_S_, master_S);
  if (frozen_ && copy_S_.defined()) master_S.reset();
}

void ShardState::drop_master() {
  if (!copy_S_.defined()) return;
  master_S.reset();
  host_ = {};
}

const ShardState::HostState& ShardState::host() {
  if (strategy_.state_device().is_cpu()) {
    host_ = {master_S, adam_m_S, adam_v_A};
  } else if (!host_.master_S.defined()) {
    const auto room = [](const at::Tensor& t) {
      return t.defined() ? at::zeros({t.numel()}, t.scalar_type()) : at::Tensor();
    };
    host_ = {room(master_S), room(adam_m_S), room(adam_v_A)};
  }
  return host_;
}

// Calls f(state tensor, its copy on the host) for each copy that there is.
template <typename F>
void ShardState::for_each_copy(F&& f) {
  if (strategy_.state_device().is_cpu()) return;
  if (host_.master_S.defined()) f(master_S, host_.master_S);
  if (host_.adam_m_S.defined()) f(adam_m_S, host_.adam_m_S);
  if (host_.adam_v_A.defined()) f(adam_v_A, host_.adam_v_A);
}

void ShardState::pull() {
  host();
  for_each_copy([](at::Tensor& on_device, at::Tensor& on_host) { on_host.copy_(on_device); });
}

void ShardState::push() {
  for_each_copy([](at::Tensor& on_device, at::Tensor& on_host) {
    LOCKSTEP_CHECK(on_device.numel() == on_host.numel(), on_host.numel(), " elements for ",
                   on_device.numel());
    on_device.copy_(on_host);
  });
  host_ = {};
}

Result<void> ShardState::gather_copies(Gatherer& copies) {
  if (copies.world_size() == 1) return {};
  const int64_t owned = held_elements_ / copies.world_size();
  LOCKSTEP_CHECK(owned * copies.world_size() == held_elements_ && owned_offset_ % owned == 0 &&
                     owned_offset_ / owned == copies.rank(),
                 "part ", copies.rank(), " of ", copies.world_size(), " is at ", owned_offset_,
                 " of ", held_elements_);
  // Between devices, also where the state lies on the host: as gradient sums go.
  const auto gather = [&](const at::Tensor& held) -> Result<void> {
    const at::Tensor all = held.to(strategy_.device);
    LOCKSTEP_RETURN_IF_ERROR(
        copies.all_gather(all, all.narrow(0, owned_offset_, owned), Traffic::kExchange)->wait());
    if (all.data_ptr() != held.data_ptr()) at::Tensor(held).copy_(all);
    return {};
  };
  for (const at::Tensor& held : {master_S, adam_m_S})
    if (held.defined()) LOCKSTEP_RETURN_IF_ERROR(gather(held));
  if (!adam_v_A.defined() || adam_v_A.numel() == 0) return {};
  if (adam_v_A.numel() == held_elements_) return gather(adam_v_A);
  // Ranks own unlike parts of what is not Muon's: it travels at its place among all.
  const at::Tensor whole = at::zeros({held_elements_}, adam_v_A.options());
  const auto for_each_run = [&](const std::vector<Segment>& segments, int64_t offset, auto f) {
    for (const Segment& s : segments) {
      if (is_muons(s.param)) continue;
      const int64_t at = offset + s.range_offset, n = s.tiles * layout::kTileElements;
      f(adam_v_A.narrow(0, place_in_v(s.param, at), n), whole.narrow(0, at, n));
    }
  };
  for_each_run(owned_segments_, owned_offset_,
               [](const at::Tensor& own, const at::Tensor& there) { there.copy_(own); });
  LOCKSTEP_RETURN_IF_ERROR(gather(whole));
  for_each_run(held_segments_, 0,
               [](const at::Tensor& held, const at::Tensor& there) { held.copy_(there); });
  return {};
}

}  // namespace lockstep::core
