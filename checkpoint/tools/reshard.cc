#include "checkpoint/tools/reshard.h"

namespace lockstep::checkpoint {

Result<std::filesystem::path> reshard(FileSystem& file_system, const ReshardOptions& options,
                                      const Progress& progress) {
  LOCKSTEP_TRY(CheckpointSource source,
               CheckpointSource::open(file_system, options.source, options.threads));
  const Manifest& manifest = source.manifest();
  WholeCheckpoint whole;
  whole.folder = options.folder;
  whole.attempt = {manifest.step, manifest.generation, options.nonce};
  whole.world_size = options.world_size;
  LOCKSTEP_TRY(const Codec own, codec_from_name(manifest.codec));
  whole.codec = options.codec.value_or(own);
  whole.threads = options.threads;
  whole.tensors = manifest.tensors;
  whole.trainer_state = manifest.trainer_state;
  whole.validation_loss = manifest.validation_loss;
  return write_whole(
      file_system, whole,
      [&](const std::vector<LiveTarget>& targets) { return source.read(targets); }, progress);
}

}  // namespace lockstep::checkpoint
