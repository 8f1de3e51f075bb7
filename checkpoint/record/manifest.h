// manifest.json: the commit record of a checkpoint. A directory with a valid one is a checkpoint;
// a directory without is the rest of an attempt. docs/FORMAT.md describes the text.
//
// Of many ranks it is in parts (manifest_parts.h): what describes the rank files lies in files of
// its own, and manifest.json says which of them holds what.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/record/state.h"

namespace lockstep::checkpoint {

// Written is the lowest one that can say it: 2 has tensors that are not fp32, 3 is in parts.
inline constexpr int64_t kFormatVersion = 1, kNarrowFormatVersion = 2, kPartsFormatVersion = 3;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kIndexName = "index.h5";
inline constexpr const char* kLatestName = "LATEST";

struct ManifestTensor {
  std::string name;
  std::vector<int64_t> global_shape;
  std::map<std::string, std::string> fingerprint;  // kind -> 16 hex digits of the whole tensor
  std::map<std::string, Dtype> dtypes = {};        // by kind, of those that are not fp32

  Dtype dtype_of(Kind kind) const;
};
struct ManifestFile {
  std::string name;  // rank_00000.h5
  int64_t size_bytes = 0;
  int64_t chunk_rows = 0;  // in /__chunks__
  int64_t chunk_table_offset = 0;
  std::string chunk_table_xxh3;     // of its rows
  std::string outside_xxh3;         // XXH3 over all bytes outside chunks, in file order
  std::vector<TensorPiece> pieces;  // its datasets, in the order of the chunk table
};
struct ManifestPart {  // what manifest.json says of one
  std::string name;    // manifest_00000.json
  int64_t size_bytes = 0;
  std::string xxh3;                 // of its bytes
  int64_t file_count = 0;           // that it describes
  int64_t stored_bytes = 0;         // of these
  std::vector<TensorPiece> pieces;  // of these, sorted; neighbours are joined
};
// How pieces are cut into chunks: of at most `elements`. Equal: as few as that allows, all of one
// size, so that next to no padding is stored; else full ones, as the first checkpoints had.
struct Chunking {
  int64_t elements = 0;
  bool equal = true;
  bool operator==(const Chunking&) const = default;
};

struct Manifest {
  int64_t format_version = kFormatVersion;
  int64_t step = 0, generation = 0, world_size = 0;
  std::string nonce, created_utc;
  bool ephemeral = false;                 // goes with the next commit
  std::optional<double> validation_loss;  // of this state, where it was validated; finite
  std::string index_xxh3;                 // of index.h5; empty: none is written
  std::string codec = "zstd";
  Chunking chunking;
  std::vector<ManifestFile> files;      // of a manifest in parts, those of the parts that were read
  std::vector<ManifestPart> parts;      // set_parts
  std::vector<ManifestTensor> tensors;  // sorted by name: set_tensors
  std::string trainer_state;            // JSON object text

  const ManifestTensor* find_tensor(const std::string& name) const;
  // Both set the format's version by what it has to say.
  void set_tensors(std::vector<ManifestTensor> all);
  void set_parts(std::vector<ManifestPart> all);  // in place of the files
};

// The tensors that `pieces` are of, sorted by name, with the fingerprints of `sums`.
std::vector<ManifestTensor> tensors_of(std::span<const LivePiece> pieces, const Fingerprints& sums);

// The text, whose last field is the XXH3 of all before it.
std::string manifest_text(const Manifest& manifest);
// A rank's vote carries its part of the manifest in the same form: partial fingerprints, one file.
enum class Coverage { kWhole, kPart };
// Errors: kCorrupt (self-checksum, JSON, fields, coverage), kConfig (another format version).
Result<Manifest> parse_manifest(const std::string& contents, Coverage coverage = Coverage::kWhole);

// The text of a part, and what it says. Errors: kCorrupt (JSON, fields).
std::string part_text(std::span<const ManifestFile> files);
Result<std::vector<ManifestFile>> parse_part(const std::string& contents, const Manifest& whole);

// Every kind of every tensor is covered exactly once by the pieces of the parts, or where there are
// none, of the files. Errors: kCorrupt.
Result<void> check_coverage(const Manifest& manifest);

// What whole tensors must sum to; ranks that each loaded a part add their sums and ask this.
// Tensors that `whole` does not name are not looked at. Errors: kCorrupt naming tensors.
Result<void> check_fingerprints(const Manifest& manifest, const Fingerprints& whole);

}  // namespace lockstep::checkpoint
