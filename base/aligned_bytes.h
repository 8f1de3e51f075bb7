// Memory that starts at a block of the disk, for accesses that bypass the page cache.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "base/check.h"
#include "base/file_system.h"

namespace lockstep {
inline namespace base {

// Grows, never shrinks; growing forgets what was in it. Not zeroed.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(size_t size) { reserve(size); }

  void reserve(size_t size) {
    if (size <= capacity_) return;
    const size_t rounded = (size + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, rounded)));
    LOCKSTEP_CHECK(memory_ != nullptr, "out of memory: ", rounded, " bytes");
    capacity_ = rounded;
  }
  std::byte* data() const { return memory_.get(); }
  size_t capacity() const { return capacity_; }
  std::span<std::byte> first(size_t size) const {
    LOCKSTEP_CHECK(size <= capacity_, size, " of ", capacity_);
    return {memory_.get(), size};
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte[], Free> memory_;
  size_t capacity_ = 0;
};

}  // namespace base
}  // namespace lockstep
