// The name of an attempt's directory: step_00001000.g3-7f2a91, step . generation - nonce. An engine
// that tries the same step again adds -2, -3, …: a name is never used twice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"

namespace lockstep::checkpoint {

struct Attempt {
  int64_t step = 0, generation = 0;
  std::string nonce;
  int64_t number = 1;  // of this step by this engine
  bool operator==(const Attempt&) const = default;
};

// Six hexadecimal digits that another process, or another moment, does not give.
std::string fresh_nonce(Clock& clock);
std::string attempt_name(const Attempt& attempt);
// Empty when `name` is not one of ours.
std::optional<Attempt> parse_attempt(const std::string& name);

}  // namespace lockstep::checkpoint
