// One snapshot of one rank in a file of host memory (tmpfs), written over and over in place.
//
//   0      prefix, 48 bytes: magic, run id, committed step, header bytes, data offset, `complete`
//   48     header: the text of a Manifest with this rank's part alone (manifest.h)
//   data   the pieces, in the order of the header, at a multiple of 4096
//
// Writing: 1. complete = 0; 2. the pieces; 3. header and prefix; 4. complete = XXH3 of both. A kill
// at any moment leaves a slot that says it is not complete, or a whole one. It is private to one
// run on one host, and no format of record. Thread: one at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/record/manifest.h"
#include "checkpoint/save/state_source.h"

namespace lockstep::checkpoint {

// What a snapshot is of.
struct SnapshotTag {
  uint64_t run_id = 0;
  int64_t generation = 0, step = 0;
  std::string nonce;  // of the generation
  int rank = 0, world_size = 1;
  int64_t committed_step = -1;  // newest one on disk that this rank knew of
  std::string trainer_state;    // JSON object text
};

struct SlotHeader {
  int64_t committed_step = -1;
  int64_t data_offset = 0;
  Manifest part;  // files[0]: this rank's pieces; fingerprints of what this rank has of a tensor
};

inline constexpr int64_t kSlotPrefixBytes = 48;
inline constexpr int64_t kSlotCompleteOffset = 40;  // of the last word of the prefix

// Where things are in a slot, the same for every step.
struct SlotSize {
  int64_t data_offset = 0, file_bytes = 0;
};
SlotSize slot_size(std::span<const LivePiece> layout);

class SlotFile {
 public:
  // Makes the file, which takes no memory yet. Errors: kNoSpace, kIo.
  static Result<SlotFile> create(FileSystem& file_system, const std::filesystem::path& path,
                                 SlotSize size);
  Result<void> take_memory() { return file_->allocate(size_.file_bytes); }  // Errors: kNoSpace

  // All four steps; calls `on_read` once or twice, in step 2: the state may change from then on.
  // Requires: `state` has the layout that the size was made for. Errors: kIo, kConfig (a trainer
  // state of tens of KiB), kBug (the state was not there).
  Result<void> write(const SnapshotTag& tag, StateSource& state,
                     const std::function<void()>& on_read);

  // A copy that travels as bytes: everything but `complete`, then `complete` alone.
  Result<void> read_raw(std::span<std::byte> bytes, int64_t offset);
  Result<void> write_raw(std::span<const std::byte> bytes, int64_t offset);
  Result<void> set_complete(uint64_t word);
  int64_t size_bytes() const { return size_.file_bytes; }

 private:
  SlotFile(std::unique_ptr<File> file, SlotSize size) : file_(std::move(file)), size_(size) {}
  Result<Fingerprints> write_pieces(StateSource& state, const std::function<void()>& on_read);
  Result<void> write_part(const TensorPiece& piece, const StateSource::Part& part,
                          int64_t file_offset, uint64_t& sum);
  std::unique_ptr<File> file_;
  SlotSize size_;
};

// What a slot holds. Errors: kAborted (nothing complete is in it), kNotFound (no file, or of
// another run), kCorrupt, each naming the file.
Result<SlotHeader> read_slot(FileSystem& file_system, const std::filesystem::path& path,
                             uint64_t run_id);

}  // namespace lockstep::checkpoint
