// manifest.json of a folder made by prepare: what the tokens are, where they lie, and what vouches
// for every byte of them. It is published last, so a folder that has one is complete. Format:
// docs/FORMAT_DATA.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::data {

// 4: the checksums of blocks lie in the shards. Older ones have them here: 1 is without masks, 2
// with them, 3 packed.
inline constexpr int64_t kManifestVersion = 4;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr std::string_view kShardSuffix = ".tokens";
inline constexpr std::string_view kMaskSuffix = ".mask";
inline constexpr std::string_view kStartsSuffix = ".starts";
inline constexpr int kMaskWordBits = 16;
inline constexpr const char* kTokenizerFolder = "tokenizer";  // what open_tokenizer reads again

// What a shard file's bytes are compared with.
struct Checksums {
  std::string table_xxh3;               // of the table of checksums that ends the file
  std::vector<std::string> block_xxh3;  // until version 3: of each MiB, and the file has no table
};

// A bit for each token of a shard: a shard file of u16 words; bit k of word w is token 16*w + k's.
struct BitsInfo {
  std::string file;
  Checksums checksums;
};
constexpr int64_t mask_words(int64_t tokens) {
  return (tokens + kMaskWordBits - 1) / kMaskWordBits;
}

struct ShardInfo {
  std::string file;  // name in the folder
  int64_t tokens = 0;
  std::string split;  // "train" | "val"
  Checksums checksums;
  std::optional<BitsInfo> mask;    // 1: counts as a label; absent: every token counts
  std::optional<BitsInfo> starts;  // 1: a document starts; only where packed
};

// What the tokens were made from, and how. Equal recipes make equal folders.
struct Recipe {
  std::string tokenizer;  // "byte", "tokenizer.json", …
  std::string tokenizer_hash;
  int64_t documents = 0;  // files
  int64_t input_bytes = 0;
  std::string input_xxh3;      // of every file's length and bytes, in order; no names, no paths
  std::string records;         // of JSON lines: RecordFormat::description(); empty: text
  int64_t val_millionths = 0;  // share of segments held out
  int64_t segment_bytes = 0;
  int64_t shard_tokens = 0;    // tokens in a full shard
  int64_t packed_seq_len = 0;  // documents are packed into samples of so many tokens; 0: not
  bool operator==(const Recipe&) const = default;
};

struct DatasetManifest {
  int64_t format_version = 1;
  std::string dtype;  // "u16" | "u32"
  int64_t vocab_size = 0;
  int64_t end_of_document = 0;  // token id
  std::string tokenizer;        // = recipe.tokenizer
  std::string tokenizer_hash;   // = recipe.tokenizer_hash
  Recipe recipe;
  int64_t filling_tokens = 0;     // where packed, of all splits: those that are no document's
  std::vector<ShardInfo> shards;  // each split's in stream order
  std::string hash;               // XXH3 of the rest: part of the identity
  int64_t tokens(const std::string& split) const;
};

// Errors: kNotFound (not a folder made by prepare), kCorrupt naming the file and what is wrong with
// it.
Result<DatasetManifest> read_manifest(FileSystem& file_system, const std::filesystem::path& folder);

// The file's text. Sets manifest.hash first.
std::string seal_manifest(DatasetManifest& manifest);

}  // namespace lockstep::data
