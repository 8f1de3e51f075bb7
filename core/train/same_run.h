// That all ranks of a generation compute the same run, looked at before the first step: ranks with
// different configs would train together, and the losses would be nobody's.
//
//   1. all ranks gather a hash of each other's lines: eight bytes a rank, as a rule nothing more
//   2. on a difference rank 0 puts its lines into the store; the first rank that differs reads
//      them, and says there what differs
//   3. all ranks take its word, and meet once more: who serves the store may then leave
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "core/comm/communicator.h"
#include "core/comm/shared_store.h"

namespace lockstep::core {

// Collective. `lines`: "name=value". `what` they are ("config"), once in a generation.
// Errors: kConfig on every rank, naming the first rank that differs from rank 0, keys and both
// values; communication.
Result<void> check_same_run(const std::string& what, const std::vector<std::string>& lines,
                            Communicator& comm, SharedStore& store, double timeout_s);

// What that error says. `odd`: the ranks that differ from rank 0, ascending; `theirs` are the first
// one's. Requires: not empty.
std::string run_difference(const std::string& what, const std::vector<int>& odd,
                           const std::vector<std::string>& rank_0s,
                           const std::vector<std::string>& theirs);

}  // namespace lockstep::core
