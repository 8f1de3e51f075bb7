// Where a rank's state lies, for those who copy it while it is frozen: saves, and snapshots in
// memory. What lies on a device comes to the host a part at a time (core/train/state_pieces.h).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/record/state.h"

namespace lockstep::checkpoint {

class StateSource {
 public:
  // Whole elements of layout()[piece], `offset` bytes in, on the host.
  struct Part {
    size_t piece = 0, offset = 0;
    std::span<const std::byte> bytes;
  };
  // The reader. Each part goes to `look`, and later to `take`. State on the host goes to `look` as
  // a whole before its first part goes to `take`: a comparison then finds a state that changed.
  struct Reading {
    std::function<void(const Part&)> look = {};
    std::function<Result<void>(const Part&)> take;
    std::function<void()> may_change = {};  // called once, before read() returns
  };

  virtual ~StateSource() = default;
  // The pieces, each whole and in order. Bytes on a device have its addresses, which the host must
  // not touch.
  virtual std::span<const LivePiece> layout() const = 0;
  // All parts, in order. Requires: the state does not change before `may_change` was called.
  // Errors: what `take` returned; nothing is read after that. Thread: any.
  virtual Result<void> read(const Reading& reading) = 0;
};

// State in memory of the host: each piece is one part. Borrows the bytes.
class HostState final : public StateSource {
 public:
  explicit HostState(std::vector<LivePiece> layout) : layout_(std::move(layout)) {}
  std::span<const LivePiece> layout() const override { return layout_; }
  Result<void> read(const Reading& reading) override;

 private:
  std::vector<LivePiece> layout_;
};

}  // namespace lockstep::checkpoint
