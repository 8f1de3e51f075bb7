// data.kind = "npy": an integer array [steps, sequences, T] as the training data, in file order, no
// shuffle: what a parity check against another program needs.
//
// Step s reads row s, from the first again after the last; slot v of V takes sequences
// [v*B, (v+1)*B) of it, so sequences = V * B. Labels are the tokens shifted inside T, as
// transformers forms them: a sequence's last position predicts nothing (label -100).
#pragma once

#include <memory>

#include "base/file_system.h"
#include "data/token_dataset.h"

namespace lockstep::data {

struct NpyTokens {
  int64_t steps = 0, sequences = 0, seq_len = 0;
};
// The shape of the array in `path`. Errors: kConfig (no such file, not an .npy of integers in three
// dimensions), kIo.
Result<NpyTokens> read_npy_tokens(FileSystem& file_system, const std::filesystem::path& path);

// options.folder is the file. Reads all of it once: a token that is negative or not below the
// vocabulary is found here. Errors: those of read_npy_tokens; kConfig (T, V * B, vocabulary, or
// the split "val", which there is not).
Result<std::unique_ptr<TokenDataset>> open_npy(FileSystem& file_system,
                                               TokenDataset::Options options);

// By data.kind: "tokens" is a folder made by prepare, "npy" a file. The manifest of an .npy file
// has a hash and no vocabulary.
Result<DatasetManifest> manifest_of(FileSystem& file_system, const std::string& kind,
                                    const std::filesystem::path& path);
Result<std::unique_ptr<TokenDataset>> open_dataset(FileSystem& file_system, const std::string& kind,
                                                   TokenDataset::Options options);

}  // namespace lockstep::data
