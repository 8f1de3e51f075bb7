// manifest.json of a folder made by prepare: what the tokens are, where they lie, and a checksum of
// every block. It is published last, so a folder that has one is complete. Format:
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

inline constexpr int64_t kManifestVersion = 2;  // 1: the same without masks
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr std::string_view kShardSuffix = ".tokens";
inline constexpr std::string_view kMaskSuffix = ".mask";
inline constexpr int kMaskWordBits = 16;
inline constexpr const char* kTokenizerFolder = "tokenizer";  // what open_tokenizer reads again

// A shard's loss mask: a shard file of u16 words; bit k of word w is 1 when token 16*w + k counts
// as a label.
struct MaskInfo {
  std::string file;
  std::vector<std::string> block_xxh3;
};
constexpr int64_t mask_words(int64_t tokens) {
  return (tokens + kMaskWordBits - 1) / kMaskWordBits;
}

struct ShardInfo {
  std::string file;  // name in the folder
  int64_t tokens = 0;
  std::string split;                    // "train" | "val"
  std::vector<std::string> block_xxh3;  // one per 1 MiB of the file, header included
  std::optional<MaskInfo> mask;         // absent: every token counts
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
  int64_t shard_tokens = 0;  // tokens in a full shard
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
