#include "core/audit/unit_digests.h"

#include "base/hash.h"

namespace lockstep::core {
namespace {

// Of all units of the model, the number of those before `unit` that are trained.
size_t trained_before(const layout::ModelSpec& model, size_t unit) {
  size_t count = 0;
  for (size_t u = 0; u < unit; ++u) count += !model.units[u].frozen;
  return count;
}

}  // namespace

UnitDigests::UnitDigests(const layout::ModelSpec& model,
                         std::span<const layout::WrappedUnit> wrapped)
    : sums_(2 * trained_before(model, model.units.size())) {
  for (const layout::WrappedUnit& run : wrapped) {
    if (run.spec.frozen) continue;
    auto& places = places_.emplace_back();
    for (size_t i = 0; i < run.first_params.size(); ++i) {
      const size_t unit = static_cast<size_t>(run.first_unit) + i;
      for (const layout::ParamSpec& param : model.units[unit].params)
        places.push_back({trained_before(model, unit), xxh3_64(param.name)});
    }
  }
}

void UnitDigests::clear() {
  for (auto& sum : sums_) sum = 0;
}

uint64_t UnitDigests::seed(size_t unit, int param, int64_t flat_start) const {
  return places_[unit][static_cast<size_t>(param)].seed + static_cast<uint64_t>(flat_start);
}

void UnitDigests::add(size_t unit, int param, uint64_t weights, uint64_t gradients) {
  const size_t digest = places_[unit][static_cast<size_t>(param)].digest;
  sums_[digest] += weights;
  sums_[sums_.size() / 2 + digest] += gradients;
}

}  // namespace lockstep::core
