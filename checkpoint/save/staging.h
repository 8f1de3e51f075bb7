// The copy of this rank's state that a save writes while training goes on.
//
// stage() reads what its source gives twice: first for fingerprints, then for the copy, which must
// have the same ones. A state on the host is read whole each time, so that one that changes between
// the first read and the last is seen, wherever it changed; one byte that did not arrive is seen
// too. Of a state on a device these are the two reads of each part's way through the host.
// Thread: one at a time. Owns the copy. Borrows the source.
#pragma once

#include <memory>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/save/state_source.h"

namespace lockstep::checkpoint {

class StagingArea {
 public:
  // Takes the memory now, so that what does not fit is said at start, in GiB.
  // Errors: kConfig (too little memory, or a piece that does not lie in its tensor).
  static Result<StagingArea> create(FileSystem& file_system, StateSource& source);

  // Copies the live state. Returns its fingerprints. Requires: the state does not change before
  // `may_change` was called. Errors: kBug naming the tensor when it did.
  Result<Fingerprints> stage(const std::function<void()>& may_change);
  // The copy, piece by piece in the order of the layout.
  const std::vector<LivePiece>& staged() const { return staged_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  StateSource* source_ = nullptr;
  std::vector<LivePiece> staged_;
  std::unique_ptr<std::byte[]> memory_;
  int64_t size_bytes_ = 0;
};

}  // namespace lockstep::checkpoint
