#include "core/train/initial_load.h"

#include "base/text.h"
#include "checkpoint/load/chunk_reader.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/load/selection.h"
#include "core/train/agreement.h"
#include "core/train/state_pieces.h"

namespace lockstep::core {
namespace {

Result<LoadedPart> load_part(FileSystem& file_system, const checkpoint::LoadSelection& selection,
                             TrainingStep& step, InitialLoad& load) {
  LoadedPart part;
  std::vector<checkpoint::LiveTarget> targets = owned_targets(step.units(), selection.model_only);
  std::erase_if(targets,
                [&](const auto& target) { return !checkpoint::selects(selection, target.piece); });
  LOCKSTEP_TRY(part.manifest, checkpoint::read_manifest_for(file_system, load.directory, targets));
  std::vector<checkpoint::TensorPiece> wanted = model_pieces(step.units());
  std::erase_if(wanted, [&](const auto& piece) { return !checkpoint::selects(selection, piece); });
  const auto matched =
      checkpoint::check_match(part.manifest, wanted, parameter_names(step.units()));
  if (!matched.ok()) return matched.error().in(load.directory.string());
  load.tensors = static_cast<int64_t>(wanted.size());
  step.pull_state();  // what is not selected keeps what it holds
  LOCKSTEP_TRY(const auto statistics,
               checkpoint::load_pieces(file_system, load.directory, part.manifest, targets,
                                       checkpoint::reader_threads()));
  load.read_bytes = statistics.read_bytes;
  part.sums = statistics.sums;
  return part;
}

}  // namespace

Result<InitialLoad> load_initial(FileSystem& file_system, const Config& config, SharedStore& store,
                                 Communicator& comm, TrainingStep& step, int64_t attempt) {
  const auto& options = config.checkpoint;
  const checkpoint::LoadSelection selection{options.initial_load_model_only,
                                            options.exclude_from_loading};
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::check_selection(selection, parameter_names(step.units())));
  Agreement agreement(store, comm, config.comm.init_timeout_seconds, text("initial/", attempt));
  Proposal mine;
  if (comm.rank() == 0) {
    const auto found = checkpoint::find_checkpoint(file_system, options.initial_load_path);
    if (found.ok())
      mine.directory = found.value().string();
    else
      mine.refusal = found.error().message;
  }
  LOCKSTEP_TRY(const Proposal agreed, agreement.share(0, mine));
  if (!agreed.refusal.empty())
    return Error{Code::kConfig, text("checkpoint.initial_load_path: ", agreed.refusal)};
  InitialLoad load{agreed.directory, 0, 0};
  const Result<LoadedPart> part = load_part(file_system, selection, step, load);
  LOCKSTEP_TRY(const std::optional<Error> failure, agreement.outcome(0, part));
  if (failure) return failure->in("checkpoint.initial_load_path");
  LOCKSTEP_RETURN_IF_ERROR(step.take_loaded());
  return load;
}

}  // namespace lockstep::core
