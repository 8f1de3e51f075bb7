// What a unit holds on one rank: state, gathered parameters, gradients under way, partial sums.
// The same takings and givings as core/sharding/unit.cc, in bytes.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "model_spec/memory_ledger.h"
#include "model_spec/model_spec.h"

namespace lockstep::model_spec {

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

// How the state is spread and how gradients travel.
struct Spread {
  int64_t world_size = 1;
  bool replicate_state = false;  // single, ddp
  int64_t wire_bytes = 4;        // of an element on the wire and in the gathered form
  int64_t fold_partials = 1;     // partial sums of a shard's size that the fold holds at most
  bool native = false;           // training.reduction = native

  static Spread create(const Config& config, int64_t world_size);
};

class UnitMemory {
 public:
  // Holds the state, for good. Borrows all but `spread`.
  UnitMemory(const UnitSpec& spec, const Spread& spread, MemoryLedger& ledger, PoolMemory& pool);

  void start_gather();
  void release();
  void grad();               // memory for the slot's gradients
  void grad_sum(int param);  // and for one that is summed in fp32 inside the slot
  void start_exchange();
  void finish_exchange();

  const UnitSpec& spec() const { return spec_; }
  int64_t tiles_per_rank() const { return tiles_per_rank_; }
  int64_t shard_elements() const { return tiles_per_rank_ * kTileElements; }
  int64_t padded_elements() const { return shard_elements() * spread_.world_size; }

 private:
  int64_t wire_size() const { return padded_elements() * spread_.wire_bytes; }

  const UnitSpec& spec_;
  Spread spread_;
  MemoryLedger& ledger_;
  PoolMemory& pool_;
  int64_t tiles_per_rank_;
  bool resident_, gathered_ = false, sending_ = false, receiving_ = false;
  std::vector<bool> summed_;  // by param: its fp32 accumulator was made
};

}  // namespace lockstep::model_spec
