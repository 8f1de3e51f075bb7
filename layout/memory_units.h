// What a unit holds on rank 0, in bytes: the state of ShardState, the buffer of GatheredParams, the
// buffers and sums of GradExchange (core/sharding). What travels, and where it is added, is said by
// the same ExchangePlan.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "layout/exchange_plan.h"
#include "layout/memory_ledger.h"
#include "layout/shard_layout.h"

namespace lockstep::layout {

// core/sharding/buffer_pool.h: buffers of a size serve whoever needs that size, and stay.
class PoolMemory {
 public:
  explicit PoolMemory(MemoryLedger& ledger) : ledger_(ledger) {}
  void take(MemoryUse use, int64_t bytes);
  void give(MemoryUse use, int64_t bytes);

 private:
  MemoryLedger& ledger_;
  std::map<int64_t, int64_t> idle_;  // buffers by size
};

class UnitMemory {
 public:
  // Holds the state, and the sums of slots, which stay once they were made. Borrows all.
  UnitMemory(const UnitSpec& spec, const Strategy& strategy, const OpenSums& sums,
             MemoryLedger& ledger, PoolMemory& pool);

  void start_gather();
  void release();
  void grad();               // memory for the slot's gradients
  void grad_sum(int param);  // and for one that is summed in fp32 inside the slot
  // `plan` outlives the exchange.
  void start_exchange(const ExchangePlan& plan);
  void advance_exchange();
  void finish_exchange();

  bool frozen() const { return spec_.frozen; }
  const ShardLayout& layout() const { return layout_; }

 private:
  int64_t compute_size() const { return layout_.padded_elements() * strategy_.compute_bytes(); }
  using Transfer = void (PoolMemory::*)(MemoryUse, int64_t);
  void each_buffer(const Leg& leg, int64_t part_elements, Transfer transfer);
  void give_gradients();

  const UnitSpec& spec_;
  const Strategy& strategy_;
  MemoryLedger& ledger_;
  PoolMemory& pool_;
  ShardLayout layout_;
  bool gathered_ = false, sending_ = false;
  const ExchangePlan* travelling_ = nullptr;
  bool second_leg_ = false;
  std::vector<bool> summed_;  // by param: its fp32 accumulator was made
};

// The parameters of one unit of the model inside the unit that holds them (wrap.h).
struct PartMemory {
  UnitMemory* unit;
  int first_param;
  const UnitSpec* spec;

  void grad() const { unit->grad(); }
  void grad_sum(int param) const { unit->grad_sum(first_param + param); }
  // Where the part has such a parameter.
  void grad_sum(Role role) const {
    if (const int param = spec->find(role); param >= 0) grad_sum(param);
  }
};

}  // namespace lockstep::layout
