// Memory that processes of one machine share, and a way to wait for a word in it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"

namespace lockstep {
inline namespace base {

// Zeros at first; takes memory page by page as it is written. It has no name in any file system and
// is gone when the last process that maps it is, however that ends.
// Owns its mapping. Thread-safe.
class SharedRegion {
 public:
  // `bytes` bounds the addresses, not the memory. Errors: kIo.
  static Result<SharedRegion> create(size_t bytes);
  // Another process's region, by what address() says there. Errors: kIo (another machine or
  // container, another user, gone).
  static Result<SharedRegion> open(const std::string& address);
  SharedRegion(SharedRegion&& other) noexcept { *this = std::move(other); }
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  // At most kMaxAddress bytes.
  std::string address() const;
  static constexpr size_t kMaxAddress = 64;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // Whether the process that made it still runs. Requires: opened, not created.
  bool creator_lives() const;

 private:
  SharedRegion() = default;
  Result<void> map(size_t bytes);
  int file_ = -1;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Waits while `word` is `value`, at most so long; may return early. Across processes too.
void wait_while(const std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_ns);
void wake_all(std::atomic<uint32_t>& word);

}  // namespace base
}  // namespace lockstep
