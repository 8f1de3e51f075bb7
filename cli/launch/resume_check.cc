#include "cli/launch/resume_check.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "checkpoint/record/catalog.h"
#include "cli/shared/json_fields.h"
#include "config/same_training.h"

namespace lockstep::cli {
namespace {

using checkpoint::CatalogEntry;
using Shapes = std::map<std::string, std::vector<int64_t>>;

// Of what is trained and therefore saved.
Shapes shapes_of(const layout::ModelSpec& spec) {
  Shapes shapes;
  for (const layout::UnitSpec& unit : spec.units)
    for (const layout::ParamSpec& param : unit.params)
      if (!unit.frozen) shapes[param.name] = param.shape;
  return shapes;
}

Shapes shapes_of(const checkpoint::Manifest& manifest) {
  Shapes shapes;
  for (const auto& tensor : manifest.tensors) shapes[tensor.name] = tensor.global_shape;
  return shapes;
}

// A run does not start over while it has checkpoints that can be mended.
Result<void> check_damage(const std::vector<CatalogEntry>& entries, const Config& config) {
  std::string damaged;
  for (const CatalogEntry& entry : entries) {
    if (entry.usable() || entry.suspect || entry.unread) return {};
    if (entry.has_manifest || entry.lost_manifest)
      damaged += text("\n  ", entry.directory.string(), ": ", entry.problem);
  }
  // A snapshot in memory may still be there.
  if (damaged.empty() || config.checkpoint.memory_interval > 0) return {};
  return Error{
      Code::kConfig,
      text("no checkpoint in ", config.checkpoint_folder().string(),
           " can be used; repair one, or move the folder away to start from step 0:", damaged)};
}

}  // namespace

Result<void> check_resume(FileSystem& file_system, const Config& config,
                          const layout::ModelSpec& spec) {
  if (!config.checkpoint.enable) return {};
  const auto listed = checkpoint::list_from_newest(file_system, config.checkpoint_folder());
  if (!listed) return {};
  const auto& entries = listed.value();
  const auto newest = std::find_if(entries.begin(), entries.end(),
                                   [](const CatalogEntry& entry) { return entry.usable(); });
  if (newest == entries.end()) return check_damage(entries, config);
  const auto manifest = checkpoint::read_manifest_for(file_system, newest->directory, {});
  if (!manifest) return {};
  const auto state = parse_json(manifest.value().trainer_state, /*allow_exceptions=*/false);
  if (!state.is_object()) return {};
  const std::vector<std::string> identity = strings_of(state, "identity");
  LOCKSTEP_RETURN_IF_ERROR(can_go_on(identity, integer_or(state, "slots", config.slots()), config,
                                     newest->directory.string()));
  const std::string other = other_model(identity, config);
  if (other.empty() || shapes_of(spec) == shapes_of(manifest.value())) return {};
  return Error{Code::kConfig, other};
}

}  // namespace lockstep::cli
