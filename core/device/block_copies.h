// Memory of a device that the host reads a block at a time, through two page-locked buffers, while
// the device computes. The copies are given to a stream of their own.
//
//   freeze -> read -> (all copies are given) -> thaw -> the memory changes
//               +--> take … take: the next block is on its way while one is taken
//
// 1. Copies begin after what the current stream was given before freeze().
// 2. A block is taken after its copy: the reader waits for an event.
// 3. What the current stream is given after thaw() begins after all copies that were given before.
// Each of them left out is found (tests/unit/core/sim_mutations.h).
// Threads: the training thread; read() any one, and one after the other. Borrows the memory.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/device/device.h"

namespace lockstep::core {

class BlockCopies {
 public:
  struct Part {
    size_t range = 0, offset = 0;      // the latter in bytes
    std::span<const std::byte> bytes;  // on the host, until `take` returns
  };
  // `ranges`: addresses of the device. `buffer_bytes`, a multiple of kAlignment, is the most that
  // one buffer takes; ranges are cut at its multiples, and small ones share a block.
  BlockCopies(const Device& device, std::vector<std::span<const std::byte>> ranges,
              size_t buffer_bytes);

  void freeze();
  // Requires: what was read since freeze() has called `all_given`.
  void thaw();
  // Calls `take` with all ranges in order, and `all_given` once: thaw() may follow. Requires: the
  // memory changes neither after freeze() nor before thaw(). Errors: what `take` returned, kBug
  // (the device fails).
  Result<void> read(const std::function<Result<void>(const Part&)>& take,
                    const std::function<void()>& all_given);

  static constexpr size_t kBuffers = 2;
  static constexpr size_t kAlignment = 64;  // of each part in its buffer: whole elements

 private:
  struct Cut {
    size_t range, offset, bytes, at;  // the last one in the buffer
  };
  using Block = std::vector<Cut>;
  struct Buffer {
    at::Tensor memory;
    std::shared_ptr<Event> full;
  };
  std::byte* bytes_of(const Buffer& buffer) const {
    return static_cast<std::byte*>(buffer.memory.data_ptr());
  }
  void give(const Block& block, Buffer& buffer);
  Result<void> take_all(const std::function<Result<void>(const Part&)>& take,
                        const std::function<void()>& all_given);

  const Device& device_;
  const std::vector<std::span<const std::byte>> ranges_;
  std::vector<Block> blocks_;
  std::array<Buffer, kBuffers> buffers_;
  std::unique_ptr<Stream> stream_;
  std::mutex reading_;           // for the whole of a read()
  std::mutex mutex_;             // guards last_
  std::shared_ptr<Event> last_;  // behind the copies; null: none since the last thaw()
};

}  // namespace lockstep::core
