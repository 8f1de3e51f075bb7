// One bit of one rank turns over in the production path, once, for good, or another one in every
// step, as in a bad core or memory cell.
// Tests alone ask for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::core {

enum class FlipIn {
  kActivation,
  kInputGradient,
  kGradientSum,
  // Of what this rank owns, between two updates.
  kWeight,
  kMoment,
  kSecondMoment,
  kGiven,     // the weights as others gather them
  kGathered,  // a unit that was just gathered, on this rank
  kPassedOn,  // what others of its node copy from this rank of a gather of weights
  // What an exchange of a unit's gradients has just brought to this rank.
  kFromGroup,   // from the ranks of its group
  kFromGroups,  // from other groups
};

enum class FlipWhen {
  kOnce,
  kForGood,  // also in all steps after it, wherever a site of that number is met
  // In it and all steps after it, once, at a place that follows from the step. So does the bit: one
  // of the lowest `bit` ones, where that is not 0.
  kEachStep,
  kInAShare,  // also in all steps after it, in `share` of the times that a site is met
};

struct BitFlip {
  int64_t step = 0;  // 0: never
  int rank = 0;      // -1: any
  FlipIn where = FlipIn::kActivation;
  uint64_t place = 0;  // any number: it says which site, and which of its elements
  uint64_t bit = 0;
  FlipWhen when = FlipWhen::kOnce;
  double share = 1;  // of kInAShare
};

// Before any rank of this process trains.
void set_bit_flip(const BitFlip& flip);

// The calling thread begins a step of this rank.
void flips_in_step(int64_t step, int rank);
// The tensor of a site of this kind, the `site`-th of `sites`. Requires where a bit is to turn
// over: it is on the host, and contiguous. `unit`: whose it is, for the log.
void flip_site(FlipIn where, size_t site, size_t sites, const at::Tensor& tensor,
               std::string_view unit = {});
// The same of bytes, which are its elements.
void flip_site(FlipIn where, size_t site, size_t sites, std::span<std::byte> bytes);

}  // namespace lockstep::core
