#include "layout/wrap.h"

#include <limits>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::layout {
namespace {

void append(WrappedUnit& run, const UnitSpec& unit) {
  run.spec.name = run.first_params.empty() ? unit.name : text(run.spec.name, "+", unit.name);
  run.first_params.push_back(static_cast<int>(run.spec.params.size()));
  run.spec.frozen = unit.frozen;
  run.spec.params.insert(run.spec.params.end(), unit.params.begin(), unit.params.end());
}

// "a+b+c" says too much of a long run.
void shorten_name(WrappedUnit& run, const ModelSpec& model) {
  const size_t first = static_cast<size_t>(run.first_unit), count = run.first_params.size();
  if (count > 2)
    run.spec.name = text(model.units[first].name, "..", model.units[first + count - 1].name);
}

}  // namespace

std::vector<WrappedUnit> wrap(const ModelSpec& model, WrapPolicy policy, int64_t min_num_params) {
  int64_t enough = 0;  // kModuleWrap: every unit is
  if (policy == WrapPolicy::kSizeBased) enough = min_num_params;
  if (policy == WrapPolicy::kNone) enough = std::numeric_limits<int64_t>::max();
  std::vector<WrappedUnit> runs;
  bool open = false;
  for (size_t i = 0; i < model.units.size(); ++i) {
    if (!open) {
      runs.emplace_back();
      runs.back().first_unit = static_cast<int>(i);
    }
    append(runs.back(), model.units[i]);
    const bool alone = i == 0 && model.shape.tied && policy != WrapPolicy::kNone;
    const bool last =
        i + 1 == model.units.size() || model.units[i + 1].frozen != model.units[i].frozen;
    open = !alone && !last && runs.back().spec.elements() < enough;
  }
  size_t units = 0;
  for (const WrappedUnit& run : runs) {
    LOCKSTEP_CHECK(run.first_unit == static_cast<int>(units), "unit ", run.first_unit,
                   " comes after ", units);
    units += run.first_params.size();
  }
  LOCKSTEP_CHECK(units == model.units.size(), units, " units are wrapped, of ", model.units.size());
  for (WrappedUnit& run : runs) shorten_name(run, model);
  return runs;
}

}  // namespace lockstep::layout
