// What a rank exchanges in one round, for each unit alike: which sums of slots travel in which leg
// and where they are added. Pure. GradExchange (core/sharding) carries it out; the plan of memory
// (memory_units.h) holds what it takes.
//
// 1. Under the block map a rank adds its slots itself, in fp32, and nothing travels before the
//    step's last round. Else a rank ships its slot of the round in the compute type.
// 2. First leg, in the group of G ranks: member m gets the m-th joint part (shard_layout.h) of what
//    each member has.
// 3. Second leg, where there is more than one group: group g gets part g of what each group has: an
//    owned part. The groups ship their members' pieces as they are, or add them first, where the
//    fp32 sums of whole subtrees are fewer bytes. Under group_block they add over all rounds, and
//    the second leg is in the last one.
// 4. The owner of a part adds what arrived in slot order (fold_order.h).
// 5. Reduction::kNative has none of this: one all-reduce a round.
//
//   W = 4, G = 2, cyclic, fp32, round 0, as rank 1 sees it
//     in_group       {0} {1}                 ranks 0 and 1
//     among_groups   {0,1} {2,3}             ranks 1 and 3, with sums_in_group
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "layout/strategy.h"

namespace lockstep::layout {

// The runs whose sums the members of a group ship to each other.
struct Leg {
  std::vector<SlotRun> runs;  // member 0's, then member 1's, …: in slot order
  std::vector<size_t> ends;   // by member: where its runs end
  bool fp32 = true;           // else bf16

  void add_member(const std::vector<SlotRun>& shipped);
  size_t members() const { return ends.size(); }
  std::span<const SlotRun> of(size_t member) const;
  // Piece k of all members travels together: as many times as the longest list has pieces.
  size_t pieces() const;
  // Buffers that it receives into, each of a part from each member. Alone, a member receives what
  // it sends.
  size_t buffers() const { return members() > 1 ? pieces() : 0; }
  int64_t buffer_elements(int64_t part_elements) const {
    return part_elements * static_cast<int64_t>(members());
  }
  int64_t element_bytes() const { return fp32 ? 4 : 2; }
};

struct ExchangePlan {
  std::optional<int64_t> slot;  // that this rank computes in the round
  SlotRun round;                // slots of all ranks under the cyclic map; else of the step
  bool native = false;          // rule 5
  bool sums_slots = false;      // rule 1: this rank adds its slots
  bool travels = true;          // rule 1: in this round
  bool crosses = true;          // rule 3: in this round, where there are two legs
  Leg in_group, among_groups;   // the second one has no members where it has nothing to do
  bool sums_in_group = false;   // rule 3: the groups' sums travel

  bool two_legs() const { return among_groups.members() > 0; }
  // Rule 3: what the first leg brought is for the group's sums, or for the second leg.
  bool relays() const { return two_legs() || !crosses; }
  // What the owner adds, where anything came to it.
  const Leg& last_leg() const { return two_legs() ? among_groups : in_group; }

  static ExchangePlan create(const Strategy& strategy, int64_t round, int rank);
};

}  // namespace lockstep::layout
