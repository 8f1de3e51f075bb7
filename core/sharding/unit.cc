#include "core/sharding/unit.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <numeric>
#include <optional>

#include "base/check.h"
#include "core/device/device.h"
#include "core/device/runtime.h"
#include "core/kernels/add_kernels.h"

namespace lockstep::core {
namespace {

constexpr int64_t kTile = layout::kTileElements;

void narrow_into(at::Tensor& out, const at::Tensor& in) {
  if constexpr (cuda::kBuilt) {
    if (out.is_cuda())
      return cuda::narrow_to_bf16(static_cast<uint16_t*>(out.data_ptr()), in.data_ptr<float>(),
                                  in.numel());
  }
  narrow_to_bf16(static_cast<uint16_t*>(out.data_ptr()), in.data_ptr<float>(), in.numel());
}

// `master` in the copy's type, where the copy lies.
void update_copy(at::Tensor& copy, const at::Tensor& master) {
  if (copy.device() == master.device()) return narrow_into(copy, master);
  at::Tensor on_host = master;
  if (copy.scalar_type() != at::kFloat) {
    on_host = host_tensor({master.numel()}, copy.scalar_type(), copy.device());
    narrow_into(on_host, master);
  }
  copy.copy_(on_host);
}

}  // namespace

Unit::Unit(const layout::UnitSpec& spec, const Strategy& strategy, const Groups& groups,
           BufferPool& pool)
    : spec_(spec),
      strategy_(strategy),
      groups_(groups),
      pool_(pool),
      layout_(ShardLayout::create(spec.tiles(), groups.world->world_size(),
                                  groups.shard->world_size())),
      in_group_(*groups.shard, pool),
      among_groups_(*groups.copies, pool),
      local_(layout_.padded_elements(), Reduction::kTree),
      group_(layout_.held_elements(), Reduction::kTree),
      fold_(layout_.owned_elements(), strategy.reduction) {
  const int rank = groups.world->rank();
  resident_ = layout_.shard_size == 1;
  owned_offset_ = groups.copies->rank() * layout_.owned_elements();
  owned_segments_ = segments_of(spec, layout_.first_tile(rank), layout_.tile_count(rank));
  held_segments_ = segments_of(spec, layout_.first_held_tile(rank), layout_.held_tile_count(rank));
  int64_t offset = 0;
  for (const layout::ParamSpec& p : spec.params) {
    param_offsets_.push_back(offset);
    offset += p.tiles() * kTile;
  }
  const int64_t held = layout_.held_elements();
  const bool copied =
      strategy_.compute != at::kFloat || strategy_.state_device() != strategy_.device;
  if (!copied || !frozen()) make_master();
  if (!strategy.forward_only && !frozen())
    for (at::Tensor* t : {&adam_m_S, &adam_v_S}) *t = state_tensor(held);
  if (copied) compute_S_ = at::zeros({held}, options(strategy_.compute));
  sums_.resize(spec.params.size());
  sum_begun_.resize(spec.params.size(), false);
  make_weights();
}

at::TensorOptions Unit::options(at::ScalarType dtype) const {
  return at::TensorOptions(dtype).device(strategy_.device);
}

at::Tensor Unit::state_tensor(int64_t elements) const {
  if (strategy_.state_device() == strategy_.device)
    return at::zeros({elements}, options(at::kFloat));
  return host_tensor({elements}, at::kFloat, strategy_.device).zero_();
}

void Unit::make_weights() {
  if (resident_) {
    gathered_U_ = compute_S_.defined() ? compute_S_ : master_S;
  } else {
    gathered_U_ = pool_.take_tensor(layout_.padded_elements(), strategy_.compute);
  }
  for (size_t i = 0; i < spec_.params.size(); ++i)
    weights_.push_back(view_of(gathered_U_, static_cast<int>(i)));
  if (!resident_) {
    has_memory_ = true;
    release();
  }
}

at::Tensor Unit::view_of(at::Tensor& flat, int param) const {
  const std::vector<int64_t>& shape = spec_.params[static_cast<size_t>(param)].shape;
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * shape[d];
  return at::empty({0}, flat.options())
      .set_(flat.storage(), param_offsets_[static_cast<size_t>(param)], shape, strides);
}

void Unit::make_master() {
  if (!master_S.defined()) master_S = state_tensor(layout_.held_elements());
}

void Unit::refresh_compute_copy() {
  if (compute_S_.defined()) update_copy(compute_S_, master_S);
  if (!frozen()) return;
  host_ = {};
  if (compute_S_.defined()) master_S.reset();
}

const Unit::HostState& Unit::host_state() {
  if (!strategy_.state_device().is_cuda()) {
    host_ = {master_S, adam_m_S, adam_v_S};
  } else if (!host_.master_S.defined()) {
    auto room = [&](const at::Tensor& t) {
      return t.defined() ? host_tensor({t.numel()}, at::kFloat, strategy_.device) : at::Tensor();
    };
    host_ = {room(master_S), room(adam_m_S), room(adam_v_S)};
  }
  return host_;
}

// Calls f(state tensor, its copy on the host) for each that there is.
template <typename F>
void Unit::for_each_copy(F&& f) {
  if (!strategy_.state_device().is_cuda()) return;
  host_state();
  f(master_S, host_.master_S);
  if (adam_m_S.defined()) f(adam_m_S, host_.adam_m_S);
  if (adam_v_S.defined()) f(adam_v_S, host_.adam_v_S);
}

void Unit::pull_state() {
  for_each_copy([](at::Tensor& on_device, at::Tensor& on_host) {
    on_host.copy_(on_device, /*non_blocking=*/true);
  });
}

void Unit::push_state() {
  for_each_copy([](at::Tensor& on_device, at::Tensor& on_host) { on_device.copy_(on_host); });
}

void Unit::start_gather() {
  if (resident_ || has_memory_) return;
  const size_t bytes = gathered_U_.storage().nbytes();
  gathered_U_.storage().set_data_ptr(pool_.take(bytes));
  has_memory_ = true;
  gather_ = groups_.shard->all_gather(gathered_U_, compute_S_.defined() ? compute_S_ : master_S,
                                      Traffic::kGather);
}

Result<void> Unit::finish_gather() {
  LOCKSTEP_CHECK(gathered(), "finish_gather of ", spec_.name, " before start_gather");
  if (!gather_) return {};
  auto done = gather_->wait();
  if (!done.ok()) return done.error().in(text("gathering unit ", spec_.name));
  gather_.reset();
  return {};
}

void Unit::release() {
  if (resident_ || !has_memory_) return;
  LOCKSTEP_CHECK(!gather_, "release of ", spec_.name, " while it is being gathered");
  const size_t bytes = gathered_U_.storage().nbytes();
  pool_.give(gathered_U_.storage().set_data_ptr(c10::DataPtr()), bytes);
  has_memory_ = false;
}

void Unit::begin_grads() {
  if (send_U_.defined()) return;
  LOCKSTEP_CHECK(!frozen(), "unit ", spec_.name, " is frozen");
  LOCKSTEP_CHECK(!in_group_.under_way() && !among_groups_.under_way(), "unit ", spec_.name,
                 " begins gradients while an exchange is under way");
  send_U_ = pool_.take_tensor(layout_.padded_elements(), strategy_.compute);
  auto zero = [&](int64_t from, int64_t to) {
    if (to > from) send_U_.narrow(0, from, to - from).zero_();
  };
  for (size_t i = 0; i < spec_.params.size(); ++i) {
    const int64_t end = param_offsets_[i] + spec_.params[i].elements();
    zero(end, param_offsets_[i] + spec_.params[i].tiles() * kTile);
  }
  zero(layout_.tiles * kTile, layout_.padded_elements());
}

at::Tensor Unit::grad(int param) {
  begin_grads();
  return view_of(send_U_, param);
}

at::Tensor Unit::grad_sum(int param) {
  const size_t i = static_cast<size_t>(param);
  if (frozen()) return at::zeros(spec_.params[i].shape, options(at::kFloat));
  if (strategy_.compute == at::kFloat) {
    at::Tensor view = grad(param);
    if (!sum_begun_[i]) view.zero_();
    sum_begun_[i] = true;
    return view;
  }
  if (!sums_[i].defined()) sums_[i] = at::empty(spec_.params[i].shape, options(at::kFloat));
  if (!sum_begun_[i]) sums_[i].zero_();
  sum_begun_[i] = true;
  return sums_[i];
}

void Unit::round_sums() {
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (sum_begun_[i] && strategy_.compute != at::kFloat) {
      at::Tensor out = grad(static_cast<int>(i));
      narrow_into(out, sums_[i]);
    }
    sum_begun_[i] = false;
  }
}

// What each rank of a group ships: its slot of the round, or the sums of its slots.
std::vector<std::vector<SlotRun>> Unit::runs_in_group(int group) const {
  const int members = layout_.shard_size;
  std::vector<std::vector<SlotRun>> runs;
  for (int m = 0; m < members; ++m)
    runs.push_back(subtrees_of(map_.run_of(round_, group * members + m, 1)));
  return runs;
}

// What each group ships to the others: its ranks' pieces as they are, or their sums.
std::vector<std::vector<SlotRun>> Unit::runs_among_groups(bool summed) const {
  std::vector<std::vector<SlotRun>> runs;
  for (int g = 0; g < layout_.copies(); ++g) {
    std::vector<SlotRun> list;
    if (summed)
      list = subtrees_of(map_.run_of(round_, g * layout_.shard_size, layout_.shard_size));
    else
      for (const auto& one : runs_in_group(g)) list.insert(list.end(), one.begin(), one.end());
    runs.push_back(std::move(list));
  }
  return runs;
}

// Adding in the group first pays where few fp32 sums stand for many pieces.
bool Unit::sums_in_group() const {
  auto bytes = [&](bool summed) {
    size_t pieces = 0;
    for (const auto& list : runs_among_groups(summed)) pieces += list.size();
    return pieces * (summed ? sizeof(float) : c10::elementSize(piece_dtype()));
  };
  return bytes(true) < bytes(false);
}

void Unit::start_exchange(const SlotMap& map, int64_t round) {
  round_sums();
  map_ = map;
  round_ = round;
  const std::optional<int64_t> slot = map.slot(round, groups_.world->rank());
  LOCKSTEP_CHECK(send_U_.defined() == slot.has_value(), "rank ", groups_.world->rank(), " round ",
                 round);
  if (strategy_.reduction == Reduction::kNative) return start_native();
  std::vector<at::Tensor> mine;
  if (map.block) {
    if (slot) local_.push(send_U_, {*slot, 1});
    pool_.give_tensor(send_U_);
    if (round + 1 < map.rounds()) return;
    mine = local_.take_partials();
  } else if (slot) {
    mine.push_back(send_U_);
  }
  in_group_.start(std::move(mine), runs_in_group(groups_.copies->rank()), layout_.held_elements(),
                  piece_dtype());
}

void Unit::start_native() {
  native_U_ = send_U_.defined() ? send_U_.to(at::kFloat, false, true)
                                : at::zeros({layout_.padded_elements()}, options(at::kFloat));
  native_ = groups_.world->all_reduce_sum(native_U_);
}

Result<void> Unit::finish_native() {
  if (auto done = native_->wait(); !done.ok())
    return done.error().in(text("adding gradients of unit ", spec_.name));
  native_.reset();
  const int64_t owned = layout_.owned_elements();
  fold_.push(native_U_.narrow(0, layout_.part_of(groups_.world->rank()) * owned, owned),
             map_.run_of(round_, 0, layout_.world_size));
  fold_.end_round();
  native_U_.reset();
  pool_.give_tensor(send_U_);
  return {};
}

Result<void> Unit::advance_exchange() {
  if (!in_group_.under_way() || among_groups_.under_way() || layout_.copies() == 1) return {};
  if (auto done = in_group_.wait(); !done.ok())
    return done.error().in(text("exchanging gradients of unit ", spec_.name));
  start_second_leg();
  return {};
}

void Unit::start_second_leg() {
  summed_ = sums_in_group();
  std::vector<at::Tensor> mine;
  in_group_.for_each([&](const at::Tensor& part, const SlotRun& run) {
    if (summed_)
      group_.push(part, run);
    else
      mine.push_back(part);
  });
  if (summed_) mine = group_.take_partials();
  among_groups_.start(std::move(mine), runs_among_groups(summed_), layout_.owned_elements(),
                      summed_ ? at::kFloat : piece_dtype());
}

Result<void> Unit::finish_exchange() {
  if (native_) return finish_native();
  LOCKSTEP_RETURN_IF_ERROR(advance_exchange());
  Shipment& last = layout_.copies() == 1 ? in_group_ : among_groups_;
  if (!last.under_way()) return {};
  if (auto done = last.wait(); !done.ok())
    return done.error().in(text("exchanging gradients of unit ", spec_.name));
  last.for_each([&](const at::Tensor& part, const SlotRun& run) { fold_.push(part, run); });
  fold_.end_round();
  std::vector<at::Tensor> sums = among_groups_.finish();
  if (summed_) group_.give_back(std::move(sums));
  summed_ = false;
  sums = in_group_.finish();
  if (map_.block) local_.give_back(std::move(sums));
  pool_.give_tensor(send_U_);
  return {};
}

}  // namespace lockstep::core
