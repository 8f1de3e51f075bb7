// How many CPUs the one task of a node asks for, so that all its workers compute: those of the
// node, as sinfo tells, or the part of them that goes with its GPUs. Slurm would give one. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep::launcher::slurm {

inline constexpr const char* kSinfoFormat = "%P|%c|%z|%G";  // partition, CPUs, S:C:T, gres

struct NodeShare {
  std::string partitions;   // "a,b", of which Slurm takes one; "": the site's own choice
  int64_t gpus = 0;         // of a node; 0: none, and all CPUs
  bool one_a_core = false;  // --hint=nomultithread: Slurm counts cores
};

// The least that a node of these partitions has for such a share, whichever node Slurm takes.
// `lines` are sinfo's, in kSinfoFormat. Errors: kConfig: no node has what the share asks for.
Result<int64_t> cpus_of_share(std::string_view lines, const NodeShare& share);

// "4", "a100:4" or "a100" of --gpus-per-node -> 4, 4, 1; "gpu:4(S:0-1),shard:8" of gres -> 4.
int64_t gpus_of_count(std::string_view count);
int64_t gpus_of_gres(std::string_view gres);

}  // namespace lockstep::launcher::slurm
