// Which part of another run's checkpoint a new run starts from, and whether it fits the model.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/record/manifest.h"
#include "checkpoint/record/state.h"

namespace lockstep::checkpoint {

// Whether the whole of `name` is `pattern`, in which each * stands for any run of characters, also
// none.
bool matches(std::string_view pattern, std::string_view name);

struct LoadSelection {
  bool model_only = true;            // weights, without Adam's m and v
  std::vector<std::string> exclude;  // patterns of tensor names; all their kinds
};
// Errors: kConfig naming a pattern that matches none of the model's tensors, or when all of them
// are excluded. `names` is the whole model's, the same on every rank.
Result<void> check_selection(const LoadSelection& selection, const std::set<std::string>& names);
bool selects(const LoadSelection& selection, const TensorPiece& piece);

inline constexpr size_t kNamedMismatches = 10;  // of each sort; the rest is counted

enum class Surplus { kAllowed, kRefused };  // what only the checkpoint has

// Whether the checkpoint has all that is wanted, in the same shapes. Errors: kConfig with counts
// and names of what is missing, of another shape, and only in the checkpoint: not among
// `model_names`, all that the model has (empty: not known, and not said).
Result<void> check_match(const Manifest& manifest, const std::vector<TensorPiece>& wanted,
                         const std::set<std::string>& model_names,
                         Surplus surplus = Surplus::kAllowed);

}  // namespace lockstep::checkpoint
