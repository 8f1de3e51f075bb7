#include "core/train/model_weights.h"

#include "base/log.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/record/catalog.h"
#include "core/train/state_pieces.h"
#include "hf/hf_weights.h"

namespace lockstep::core {
namespace {

Result<void> load_one(FileSystem& file_system, const Config& config,
                      const std::filesystem::path& directory, TrainingStep& model) {
  LOCKSTEP_TRY(const auto manifest, checkpoint::read_manifest(file_system, directory));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::load_pieces(file_system, directory, manifest,
                                                   owned_targets(model.units(), true),
                                                   static_cast<int>(config.checkpoint.threads)));
  return model.take_loaded();
}

Result<void> load_newest(FileSystem& file_system, const Config& config, TrainingStep& model) {
  LOCKSTEP_TRY(const auto entries,
               checkpoint::list_checkpoints(file_system, config.checkpoint_folder()));
  for (const auto& entry : entries) {
    if (!entry.committed) continue;
    const auto loaded = load_one(file_system, config, entry.directory, model);
    if (loaded.ok() || loaded.error().code == Code::kConfig) return loaded;
    log_warning("cannot use ", entry.directory.string(), ": ", loaded.error().message,
                "; trying the checkpoint before it");
  }
  return Error{Code::kNotFound,
               text("no usable checkpoint in ", config.checkpoint_folder().string())};
}

}  // namespace

Result<void> fill_weights(FileSystem& file_system, const Config& config,
                          const layout::ModelSpec& spec, const WeightSource& source,
                          TrainingStep& model) {
  if (source.of_folder || spec.adapted()) {  // a checkpoint of adapters has these alone
    LOCKSTEP_TRY(const auto weights, hf::initial_weights(file_system, config, spec));
    LOCKSTEP_RETURN_IF_ERROR(source.of_folder ? model.initialize(weights.get())
                                              : model.fill_frozen(weights.get()));
  }
  if (!source.of_folder)
    LOCKSTEP_RETURN_IF_ERROR(source.checkpoint.empty()
                                 ? load_newest(file_system, config, model)
                                 : load_one(file_system, config, source.checkpoint, model));
  model.drop_masters();
  return {};
}

}  // namespace lockstep::core
