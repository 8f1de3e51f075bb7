// Which checkpoints a folder holds, which of them are valid.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/record/manifest.h"
#include "checkpoint/record/state.h"

namespace lockstep::checkpoint {

struct CatalogEntry {
  std::filesystem::path directory;
  int64_t step = -1, generation = -1;     // from the directory's name
  bool committed = false;                 // its manifest is valid
  bool has_manifest = false;              // valid or not; without one it is the rest of an attempt
  std::string problem;                    // why it is not committed
  int64_t size_bytes = 0;                 // of the files in the manifest
  bool ephemeral = false;                 // its manifest says so
  std::optional<int64_t> created_s = {};  // unix time; from its manifest
  bool unread = false;                    // the problem: the operating system refused a read
  bool suspect = false;                   // an audit says so (suspects.h)
  std::optional<double> validation_loss = {};  // from its manifest
  bool lost_manifest = false;  // none, and yet it was committed: index.h5 is written after it
  bool usable() const { return committed && !suspect; }
};

// Manifests that a listing reads at once: each is a few waits for a file system that may be far.
inline constexpr int kManifestReaders = 8;

// Newest first (step, generation, attempt). A damaged entry is listed with its problem, never an
// error. Names that are not a checkpoint's are passed over. No rank's file is looked at, and no
// part of a manifest: whoever reads one names its damage. Errors: kNotFound, kIo of the folder;
// read_suspects'.
Result<std::vector<CatalogEntry>> list_checkpoints(FileSystem& file_system,
                                                   const std::filesystem::path& folder);
// The same by names, for who wants the newest: manifests are read from the newest on until one is
// usable. An older entry is committed when it has a manifest; no more is known of it.
Result<std::vector<CatalogEntry>> list_from_newest(FileSystem& file_system,
                                                   const std::filesystem::path& folder);

// The checkpoints of a folder for who looks at it again and again. A name is never used twice and a
// manifest never changes, so what was read of a valid one holds until its name is gone.
// Thread: one at a time. Borrows the file system.
class Catalog {
 public:
  Catalog(FileSystem& file_system, std::filesystem::path folder)
      : file_system_(file_system), folder_(std::move(folder)) {}

  // As list_checkpoints, by one listing and the manifests that are not known yet, one by one.
  Result<std::vector<CatalogEntry>> look();
  // Whoever published the manifest of `directory` need not read it.
  void add(const std::filesystem::path& directory, const Manifest& manifest);

 private:
  FileSystem& file_system_;
  const std::filesystem::path folder_;
  std::map<std::filesystem::path, CatalogEntry> valid_;
};

// The checkpoint that a person means: `given` itself, or the newest usable one in it, a folder
// of checkpoints or one that has such a folder named checkpoints. Errors: kNotFound with what is
// wrong with each, kIo.
Result<std::filesystem::path> find_checkpoint(FileSystem& file_system,
                                              const std::filesystem::path& given);
// The same, but of several the newest with a manifest, damaged or not: what to look at for damage.
Result<std::filesystem::path> find_newest_saved(FileSystem& file_system,
                                                const std::filesystem::path& given);
// given/checkpoints where it exists, else `given`.
std::filesystem::path checkpoint_folder_of(FileSystem& file_system,
                                           const std::filesystem::path& given);
// Errors: kNotFound; kCorrupt (bad JSON, bad checksum); kConfig (another format version); each
// naming the file.
Result<Manifest> read_manifest(FileSystem& file_system, const std::filesystem::path& directory);
// The same, but of a manifest in parts only those that describe files with elements of `targets`:
// enough to load these, and no more for any number of ranks.
Result<Manifest> read_manifest_for(FileSystem& file_system, const std::filesystem::path& directory,
                                   const std::vector<LiveTarget>& targets);

}  // namespace lockstep::checkpoint
