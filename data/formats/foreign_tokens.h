// Token files that other programs wrote, read as they are:
//   megatron  PREFIX.bin with PREFIX.idx beside it
//   llmc      256 int32 (magic, version, token count), then u16 (GPT-2) or u32 (Llama 3)
//   nanogpt   u16 and nothing else
//   npy       a NumPy array of integers with one dimension
// docs/FORMAT_DATA.md describes what is checked, and the hash.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "config/choices.h"
#include "data/formats/integer_type.h"
#include "data/formats/token_stream.h"

namespace lockstep::data {

// A run of tokens in a file.
struct TokenRun {
  std::filesystem::path path;
  IntegerType type;
  int64_t first_byte = 0, tokens = 0;
  std::string index_xxh3 = {};  // megatron: of what PREFIX.idx says
  std::unique_ptr<File> file = {};
};

// Reads and checks a PREFIX.idx; the run lies in the .bin beside it. Memory: bounded.
// Errors: kConfig, naming the file and offset of what is wrong; kIo.
Result<TokenRun> read_megatron_index(FileSystem& file_system, const std::filesystem::path& bin);

// The stream of one or several such files, in order.
class ForeignTokens final : public TokenStream {
 public:
  // `path` is a file (all of it is split "train"), or a folder: its .bin (.npy) files in byte order
  // of their names; those with the word val, valid or validation in the name are split "val", those
  // with the word test are left out, all others are split "train". For megatron also a PREFIX.
  // A token that is negative or not below `vocab_size` is an error when it is read.
  // Errors: kConfig, naming the file: missing, another format, cut short; no file of that split;
  // kIo.
  static Result<std::unique_ptr<ForeignTokens>> open(FileSystem& file_system, DataKind kind,
                                                     const std::filesystem::path& path,
                                                     const std::string& split, int64_t vocab_size);

  int64_t tokens() const override { return parts_.tokens(); }
  Result<void> read(int64_t first, std::span<int64_t> out) const override;
  // 16 hexadecimal digits: types, counts, indices, and all bytes of a stream of up to 1 MiB, else
  // 256 blocks of 4 KiB spread evenly over it. No names, no paths. Errors: kIo.
  Result<std::string> hash() const;

 private:
  ForeignTokens(std::vector<TokenRun> runs, int64_t vocab_size);
  std::vector<TokenRun> runs_;
  PartTable parts_;
  int64_t vocab_size_;
};

}  // namespace lockstep::data
