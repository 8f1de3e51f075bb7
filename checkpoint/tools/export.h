// Tensors of a checkpoint as safetensors files, in bounded memory.
//
// One kind: the tensors under their names in model.safetensors, or in model-00001-of-00003.
// safetensors … and model.safetensors.index.json, as Hugging Face's readers expect them. Several
// kinds: under kind/name.
//   1. each file as NAME.tmp, fsynced; 2. fingerprints; 3. the renames; 4. the index
// What an error leaves is removed; a kill leaves .tmp files, or a set without its index.
#pragma once

#include "checkpoint/tools/dtype.h"
#include "checkpoint/tools/progress.h"
#include "checkpoint/tools/window.h"

namespace lockstep::checkpoint {

struct ExportOptions {
  std::filesystem::path source;                               // a checkpoint
  std::filesystem::path folder;                               // made when missing
  std::vector<Kind> kinds{Kind::kParam};                      // of several, those that there are
  Dtype dtype = Dtype::kF32;                                  // or kBf16
  int64_t max_shard_bytes = int64_t{5} * 1000 * 1000 * 1000;  // of tensors in a file; at least one
  int threads = 1;
};

// The files written. Errors: kConfig when the folder has safetensors already, or the checkpoint no
// tensor of the one kind; those of read_manifest and load_pieces; kIo, kNoSpace.
Result<std::vector<std::filesystem::path>> export_safetensors(FileSystem& file_system,
                                                              const ExportOptions& options,
                                                              const Progress& progress);

}  // namespace lockstep::checkpoint
