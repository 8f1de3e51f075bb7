// What a unit holds on rank 0, in bytes: the state of ShardState, the buffer of GatheredParams, the
// buffers of GradExchange (core/sharding). What travels is said by the same ExchangePlan. The sums
// of slots are apart, in memory_sums.h.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "layout/exchange_plan.h"
#include "layout/memory_ledger.h"
#include "layout/shard_layout.h"

namespace lockstep::layout {

// core/sharding/buffer_pool.h: an idle buffer serves whomever it fits, and stays.
class PoolMemory {
 public:
  explicit PoolMemory(MemoryLedger& ledger) : ledger_(ledger) {}
  // Returns the bytes of the buffer, which may have more than were asked for; give takes the same.
  int64_t take(MemoryUse use, int64_t bytes);
  void give(MemoryUse use, int64_t buffer_bytes);

 private:
  MemoryLedger& ledger_;
  std::map<int64_t, int64_t> idle_;  // how many, by size
};

class UnitMemory {
 public:
  // Holds the state of `rank`. Borrows all.
  UnitMemory(const UnitSpec& spec, const Strategy& strategy, int rank, MemoryLedger& ledger,
             PoolMemory& pool);

  void start_gather();
  void release();
  void grad();               // memory for the slot's gradients
  void grad_sum(int param);  // and for one that is summed in fp32 inside the slot
  // `plan` outlives the exchange.
  void start_exchange(const ExchangePlan& plan);
  void advance_exchange();
  void finish_exchange();

  bool frozen() const { return spec_.frozen; }
  const UnitSpec& spec() const { return spec_; }
  const ShardLayout& layout() const { return layout_; }

 private:
  int64_t compute_size() const { return layout_.padded_elements() * strategy_.compute_bytes(); }
  std::vector<int64_t> receive(const Leg& leg, int64_t part_elements);
  void give_all(MemoryUse use, std::vector<int64_t>& buffers);

  const UnitSpec& spec_;
  const Strategy& strategy_;
  MemoryLedger& ledger_;
  PoolMemory& pool_;
  ShardLayout layout_;
  const ExchangePlan* travelling_ = nullptr;
  bool second_leg_ = false;
  // Buffers that it has of the pool, in bytes. Of gathered_ and sending_ there is one at most.
  std::vector<int64_t> gathered_, sending_, in_group_, among_groups_, sums_;
  std::vector<bool> summed_;  // by param: its fp32 accumulator is among sums_
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
