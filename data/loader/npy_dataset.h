// data.kind = "npy" with an integer array [steps, sequences, T]: the batches of each step, in file
// order, no shuffle: what a parity check against another program needs. (An array of one dimension
// is a stream of tokens: data/formats/foreign_tokens.h.)
//
// Step s reads row s, from the first again after the last; slot v of V takes sequences
// [v*B, (v+1)*B) of it, so sequences = V * B. Labels are the tokens shifted inside T, as
// transformers forms them: a sequence's last position predicts nothing (label -100).
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/file_system.h"
#include "data/loader/token_dataset.h"

namespace lockstep::data {

struct NpyTokens {
  int64_t steps = 0, sequences = 0, seq_len = 0;
};
// The shape of the array in `path`. Errors: kConfig (no such file, not an .npy of integers in three
// dimensions), kIo.
Result<NpyTokens> read_npy_tokens(FileSystem& file_system, const std::filesystem::path& path);

// Reads all of it once: a token that is negative or not below the vocabulary is found here.
// Errors: those of read_npy_tokens; kConfig (T, V * B, vocabulary, or the split "val", which there
// is not).
Result<std::unique_ptr<TokenDataset>> open_npy(FileSystem& file_system,
                                               const std::filesystem::path& path,
                                               TokenDataset::Options options);

// 16 hexadecimal digits of the shape and all tokens. Errors: those of read_npy_tokens.
Result<std::string> hash_npy(FileSystem& file_system, const std::filesystem::path& path);

}  // namespace lockstep::data
