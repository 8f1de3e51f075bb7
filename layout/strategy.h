// How state and work are spread over ranks: the config's words, decoded once, for the ranks
// themselves and for the plan of their memory. All strategies give the same bits.
#pragma once

#include <string>

#include "config/config.h"
#include "layout/fold_order.h"
#include "layout/shard_layout.h"
#include "layout/slot_map.h"

namespace lockstep::layout {

// What a rank keeps of its shard of a unit.
struct ShardTensors {
  bool master, optimizer;  // fp32; the optimizer's as Strategy::bf16_moments says
  bool copy;               // what is gathered: in the compute type, where the unit computes
};

struct Strategy {
  SlotMap map;
  GroupSizes sizes;
  bool forward_only = false;   // no optimizer state
  bool keep_gathered = false;  // from a unit's first use to the end of the step
  // As long, of each unit a joint part (shard_layout.h), in the compute type: what the first leg of
  // its gather brings, so that its later gathers have the second leg alone.
  bool keep_joint_part = false;
  bool forward_prefetch = true;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  bool bf16 = false;  // what computes, and travels, is in bf16; else in fp32
  Reduction reduction = Reduction::kTree;
  bool offload = false;       // state lies, and is updated, on the host
  bool muon = false;          // updates the matrices of blocks (muon_plan.h)
  bool bf16_moments = false;  // AdamW's are kept in bf16; else in fp32

  int copies() const { return map.world_size / sizes.shard; }
  ShardLayout layout_of(const UnitSpec& unit) const {
    return ShardLayout::create(unit.tiles(), map.world_size, sizes);
  }
  int64_t compute_bytes() const { return bf16 ? 2 : 4; }  // of an element
  int64_t moment_bytes() const { return bf16_moments ? 2 : 4; }

  // `state_elsewhere`: the state does not lie where the unit computes. A frozen unit keeps its
  // weights alone, in the form that is gathered.
  ShardTensors tensors_of(bool frozen, bool state_elsewhere) const {
    const bool copy = bf16 || state_elsewhere;
    return {!frozen || !copy, !frozen && !forward_only, copy};
  }

  // Requires a validated config.
  static Strategy create(const Config& config, int world_size, const NodeRanks& nodes);
};

// S: 1 for single and ddp, W for full_shard and shard_grad_op. hybrid:
// parallelism.data_parallel_shard_degree, else the ranks of the largest node; where that does not
// divide W (nodes were lost), the next larger number that does.
// G: S for hybrid. Else, on several nodes, the most ranks whose groups lie each on one node; where
// that is one rank, S.
GroupSizes group_sizes(const Config& config, int world_size, const NodeRanks& nodes);

// Why parallelism.reshard_after_forward = node changes nothing on these nodes; "": it does, or is
// not asked for.
std::string reshard_is_idle(const Config& config, int world_size, const NodeRanks& nodes);

// Ranks that take a contiguous run of slots together (slot_map.h). With group_block those of a
// group whose sums cross. Where each rank would be one, it would add up its slots itself, in whole
// units: so it does where it holds whole units of the state anyway; else the map is cyclic.
int slot_group(const Config& config, int world_size, const NodeRanks& nodes);

// The config's slot map.
SlotMap slot_map(const Config& config, int world_size, const NodeRanks& nodes);

}  // namespace lockstep::layout
