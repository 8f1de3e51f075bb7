// A checkpoint written anew for another number of ranks: the same step and state, byte for byte.
// Loading does not need it: any checkpoint loads at any world size. It makes rank files of another
// size or codec, and turns many small files into few.
#pragma once

#include <optional>

#include "checkpoint/tools/progress.h"
#include "checkpoint/tools/whole_writer.h"

namespace lockstep::checkpoint {

struct ReshardOptions {
  std::filesystem::path source;  // a checkpoint
  std::filesystem::path folder;  // of checkpoints, where the new one goes
  int64_t world_size = 1;
  std::optional<Codec> codec;  // none: the source's
  int threads = 1;
  std::string nonce;
};
// The new directory. Errors: those of read_manifest, load_pieces and write_whole; kConfig for an
// unknown codec.
Result<std::filesystem::path> reshard(FileSystem& file_system, const ReshardOptions& options,
                                      const Progress& progress);

}  // namespace lockstep::checkpoint
