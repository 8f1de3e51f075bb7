// safetensors to a checkpoint at step 0, in bounded memory: what partial loads start from.
#pragma once

#include "checkpoint/tools/progress.h"
#include "checkpoint/tools/whole_writer.h"

namespace lockstep::checkpoint {

struct ImportOptions {
  std::filesystem::path source;  // a .safetensors file, or a folder of them, with or without index
  std::filesystem::path folder;  // of checkpoints, where the new one goes
  bool zero_optimizer = false;   // adam_m and adam_v of zeros for each weight that has none
  int64_t world_size = 1;
  Codec codec = Codec::kZstd;
  int threads = 1;
  std::string nonce;
};

// The new directory. Errors, naming file and tensor: those of read_safetensors_header; kCorrupt for
// a name in two files, or an index that says otherwise; kConfig for what is not safetensors; those
// of write_whole.
Result<std::filesystem::path> import_safetensors(FileSystem& file_system,
                                                 const ImportOptions& options,
                                                 const Progress& progress);

}  // namespace lockstep::checkpoint
