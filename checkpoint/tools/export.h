// Tensors of a checkpoint as safetensors files, in bounded memory.
//
// One kind: the tensors under their names in model.safetensors, or in model-00001-of-00003.
// safetensors … and model.safetensors.index.json, as Hugging Face's readers expect them. Several
// kinds: under kind/name.
//   1. each file as NAME.tmp, fsynced; 2. fingerprints; 3. the renames; 4. the index
// What an error leaves is removed; a kill leaves .tmp files, or a set without its index.
#pragma once

#include "base/safetensors.h"
#include "checkpoint/tools/dtype.h"
#include "checkpoint/tools/progress.h"
#include "checkpoint/tools/window.h"

namespace lockstep::checkpoint {

struct ExportOptions {
  std::filesystem::path source;  // a checkpoint
  std::filesystem::path folder;  // made when missing
  std::vector<Kind> kinds{Kind::kParam};
  Dtype dtype = Dtype::kF32;                                  // or kBf16
  int64_t max_shard_bytes = int64_t{5} * 1000 * 1000 * 1000;  // of tensors in a file; at least one
  int threads = 1;
};

// One file: its tensors in order, with the bytes of each in the file, and the pieces of the
// checkpoint that they are.
struct ExportShard {
  std::string name;
  SafetensorsHeader header;
  std::string preamble;  // what stands before the tensors
  std::vector<TensorPiece> pieces;
};
// Errors: kConfig when the checkpoint has no tensor of a kind.
Result<std::vector<ExportShard>> plan_export(const Manifest& manifest,
                                             const ExportOptions& options);

// The files written. Errors: kConfig when the folder has safetensors already, or plan_export's;
// those of read_manifest and load_pieces; kIo, kNoSpace.
Result<std::vector<std::filesystem::path>> export_safetensors(FileSystem& file_system,
                                                              const ExportOptions& options,
                                                              const Progress& progress);

}  // namespace lockstep::checkpoint
