// What a unit holds on rank 0: state, gathered parameters, gradients under way, partial sums. The
// same takings and givings as core/sharding/unit.cc and shipment.cc, in bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "layout/memory_ledger.h"
#include "layout/model_spec.h"

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

// How the state is spread and how gradients travel, as rank 0 sees it.
struct Spread {
  int64_t world_size = 1;
  int64_t shard_size = 1;      // S, ranks that share a copy of the state
  bool keep_gathered = false;  // from a unit's first use to the end of the step
  bool block = false;          // slot map
  bool native = false;         // training.reduction = native
  int64_t wire_bytes = 4;      // of an element on the wire and in the gathered form
  int64_t rounds = 1;

  // Buffers that an exchange receives at once. `block` exchanges in the last round alone.
  int64_t pieces_in_group = 1, pieces_among_groups = 1;
  bool sums_in_group = false;  // the second leg carries the groups' sums, in fp32
  // Partial sums that are open together at most: of a rank's own slots [U], of its group's slots
  // [held], of all slots [owned]; each fp32.
  int64_t local_partials = 0, group_partials = 0, fold_partials = 0;

  int64_t copies() const { return world_size / shard_size; }
  int64_t piece_bytes() const { return block ? 4 : wire_bytes; }
  // `local_world_size`: ranks of a node, for hybrid.
  static Spread create(const Config& config, int64_t world_size, int64_t local_world_size);
};

class UnitMemory {
 public:
  // Holds the state, for good. Borrows all but `spread`.
  UnitMemory(const UnitSpec& spec, const Spread& spread, MemoryLedger& ledger, PoolMemory& pool);

  void start_gather();
  void release();
  void grad();               // memory for the slot's gradients
  void grad_sum(int param);  // and for one that is summed in fp32 inside the slot
  void start_exchange(bool last_round);
  void advance_exchange();
  void finish_exchange();

  bool frozen() const { return spec_.frozen; }
  int64_t tiles_per_rank() const { return tiles_per_rank_; }
  int64_t owned_elements() const { return tiles_per_rank_ * kTileElements; }
  int64_t held_elements() const { return owned_elements() * spread_.copies(); }
  int64_t padded_elements() const { return owned_elements() * spread_.world_size; }

 private:
  enum class Leg { kNone, kInGroup, kAmongGroups };
  int64_t wire_size() const { return padded_elements() * spread_.wire_bytes; }
  int64_t among_bytes() const;
  void give_gradients();

  const UnitSpec& spec_;
  Spread spread_;
  MemoryLedger& ledger_;
  PoolMemory& pool_;
  int64_t tiles_per_rank_;
  bool gathered_ = false, sending_ = false;
  Leg leg_ = Leg::kNone;
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
