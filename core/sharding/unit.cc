#include "core/sharding/unit.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <numeric>

#include "base/check.h"
#include "core/sharding/add_kernels.h"

namespace lockstep::core {
namespace {

constexpr int64_t kTile = model_spec::kTileElements;

// A 1-D tensor over memory of the pool; give_back returns the memory.
at::Tensor take_tensor(BufferPool& pool, int64_t elements, at::ScalarType dtype) {
  const size_t bytes = static_cast<size_t>(elements) * c10::elementSize(dtype);
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<int64_t>(bytes),
                       pool.take(bytes));
  return at::empty({0}, at::TensorOptions(dtype)).set_(storage, 0, {elements}, {1});
}

void give_back(BufferPool& pool, at::Tensor& t) {
  const size_t bytes = t.storage().nbytes();
  pool.give(t.storage().set_data_ptr(c10::DataPtr()), bytes);
  t.reset();
}

void narrow_into(at::Tensor& out, const at::Tensor& in) {
  narrow_to_bf16(static_cast<uint16_t*>(out.data_ptr()), in.data_ptr<float>(), in.numel());
}

}  // namespace

Unit::Unit(const model_spec::UnitSpec& spec, const Strategy& strategy, Communicator& comm,
           BufferPool& pool)
    : spec_(spec),
      strategy_(strategy),
      comm_(comm),
      pool_(pool),
      layout_(ShardLayout::create(spec.tiles(), comm.world_size())),
      fold_(layout_.shard_elements(), strategy.reduction) {
  const int rank = comm.rank();
  const bool all = strategy.replicate_state || comm.world_size() == 1;
  resident_ = all;
  owned_offset_ = all ? rank * layout_.shard_elements() : 0;
  owned_segments_ = segments_of(spec, layout_.first_tile(rank), layout_.tile_count(rank));
  held_segments_ = all ? segments_of(spec, 0, layout_.tiles) : owned_segments_;
  int64_t offset = 0;
  for (const model_spec::ParamSpec& p : spec.params) {
    param_offsets_.push_back(offset);
    offset += p.tiles() * kTile;
  }
  const int64_t held = all ? layout_.padded_elements() : layout_.shard_elements();
  for (at::Tensor* t : {&master_S, &adam_m_S, &adam_v_S})
    *t = at::zeros({held}, at::TensorOptions(at::kFloat));
  if (strategy_.compute != at::kFloat)
    compute_S_ = at::zeros({held}, at::TensorOptions(strategy_.compute));
  sums_.resize(spec.params.size());
  sum_begun_.resize(spec.params.size(), false);
  make_weights();
}

void Unit::make_weights() {
  if (resident_) {
    gathered_U_ = compute_S_.defined() ? compute_S_ : master_S;
  } else {
    gathered_U_ = take_tensor(pool_, layout_.padded_elements(), strategy_.compute);
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

void Unit::refresh_compute_copy() {
  if (compute_S_.defined()) narrow_into(compute_S_, master_S);
}

void Unit::start_gather() {
  if (resident_ || has_memory_) return;
  const size_t bytes = gathered_U_.storage().nbytes();
  gathered_U_.storage().set_data_ptr(pool_.take(bytes));
  has_memory_ = true;
  gather_ = comm_.all_gather(gathered_U_, compute_S_.defined() ? compute_S_ : master_S);
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
  LOCKSTEP_CHECK(!exchange_, "unit ", spec_.name,
                 " begins gradients while an exchange is under way");
  send_U_ = take_tensor(pool_, layout_.padded_elements(), strategy_.compute);
  std::byte* base = static_cast<std::byte*>(send_U_.data_ptr());
  const size_t width = c10::elementSize(strategy_.compute);
  auto zero = [&](int64_t from, int64_t to) {
    std::memset(base + static_cast<size_t>(from) * width, 0,
                static_cast<size_t>(to - from) * width);
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
  if (strategy_.compute == at::kFloat) {
    at::Tensor view = grad(param);
    if (!sum_begun_[i]) view.zero_();
    sum_begun_[i] = true;
    return view;
  }
  if (!sums_[i].defined())
    sums_[i] = at::empty(spec_.params[i].shape, at::TensorOptions(at::kFloat));
  if (!sum_begun_[i]) sums_[i].zero_();
  sum_begun_[i] = true;
  return sums_[i];
}

void Unit::start_exchange(int active) {
  LOCKSTEP_CHECK(!exchange_, "two exchanges of unit ", spec_.name, " at once");
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (sum_begun_[i] && strategy_.compute != at::kFloat) {
      at::Tensor out = grad(static_cast<int>(i));
      narrow_into(out, sums_[i]);
    }
    sum_begun_[i] = false;
  }
  exchange_active_ = active;
  const int64_t shard = layout_.shard_elements();
  const bool sends = send_U_.defined();
  LOCKSTEP_CHECK(sends == (comm_.rank() < active), "rank ", comm_.rank(), " of ", active,
                 " active");
  if (strategy_.reduction == Reduction::kNative) {
    received_ = sends ? send_U_.to(at::kFloat, false, true)
                      : at::zeros({layout_.padded_elements()}, at::TensorOptions(at::kFloat));
    exchange_ = comm_.all_reduce_sum(received_);
    return;
  }
  if (comm_.world_size() == 1) return;  // the sent buffer is what would be received
  received_ = take_tensor(pool_, layout_.padded_elements(), strategy_.compute);
  std::vector<int64_t> in_counts(static_cast<size_t>(comm_.world_size()), sends ? shard : 0);
  std::vector<int64_t> out_counts(in_counts.size(), 0);
  std::fill_n(out_counts.begin(), active, shard);
  exchange_ = comm_.all_to_all(received_.narrow(0, 0, shard * active), out_counts,
                               sends ? send_U_ : received_.narrow(0, 0, 0), in_counts);
}

Result<void> Unit::finish_exchange() {
  if (exchange_) {
    auto done = exchange_->wait();
    if (!done.ok()) return done.error().in(text("exchanging gradients of unit ", spec_.name));
    exchange_.reset();
  }
  const int64_t shard = layout_.shard_elements();
  if (strategy_.reduction == Reduction::kNative) {
    fold_.push_round(received_.narrow(0, comm_.rank() * shard, shard), 1);
    received_.reset();
  } else if (comm_.world_size() == 1) {
    fold_.push_round(send_U_, 1);
  } else {
    fold_.push_round(received_, exchange_active_);
    give_back(pool_, received_);
  }
  if (send_U_.defined()) give_back(pool_, send_U_);
  return {};
}

}  // namespace lockstep::core
