// Words of every rank, for every rank.
#pragma once

#include <string>
#include <vector>

#include "core/comm/communicator.h"

namespace lockstep::core {

// [bytes] of every rank, by rank; zeros follow a shorter `mine`. Collective. Errors: those of
// Pending::wait. Requires: `mine` is no longer than `bytes`, the same number on every rank.
Result<std::vector<std::string>> gather_strings(Communicator& group, std::string mine,
                                                size_t bytes);

// Rank 0's alone, for every rank. The same otherwise.
Result<std::string> string_of_first(Communicator& group, std::string mine, size_t bytes);
// The same where only rank 0 knows how long it is.
Result<std::string> string_of_first(Communicator& group, std::string mine);

}  // namespace lockstep::core
