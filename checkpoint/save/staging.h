// The copy of this rank's state that a save writes while training goes on.
//
// stage() reads the live bytes twice, whole: first their fingerprints, then the copy, which must
// have the same ones. A state that changes between the first read and the last is seen, wherever
// it changed; one byte that did not arrive is seen too.
// Thread: one at a time. Owns the copy. Borrows the live bytes.
#pragma once

#include <memory>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/record/state.h"

namespace lockstep::checkpoint {

class StagingArea {
 public:
  // Takes the memory now, so that what does not fit is said at start, in GiB.
  // Errors: kConfig (too little memory, or a piece that does not lie in its tensor).
  static Result<StagingArea> create(FileSystem& file_system, std::vector<LivePiece> layout);

  // Copies the live state. Returns its fingerprints. Requires: the live bytes do not change.
  // Errors: kBug naming the tensor when they did.
  Result<Fingerprints> stage();
  // The copy, piece by piece in the order of the layout.
  const std::vector<LivePiece>& staged() const { return staged_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  std::vector<LivePiece> live_, staged_;
  std::unique_ptr<std::byte[]> memory_;
  int64_t size_bytes_ = 0;
};

}  // namespace lockstep::checkpoint
