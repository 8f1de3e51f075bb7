// Numbers and texts as little-endian bytes, and back with every bound checked: for messages whose
// sender may be broken.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {
inline namespace base {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");

class ByteWriter {
 public:
  template <std::integral T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view words) {  // length (4), then the bytes
    number(static_cast<uint32_t>(words.size()));
    bytes_ += words;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads past the end give zeros and empty texts; finished() then says false. Borrows `bytes`.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  template <std::integral T>
  T number() {
    T value{};
    const std::string_view raw = take(sizeof value);
    if (!raw.empty()) std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }
  std::string_view text() { return take(number<uint32_t>()); }
  // How many items follow, of at least `item_bytes` each: more than there can be is an error, so
  // that a count of two thousand million reserves nothing.
  size_t count(size_t item_bytes) {
    const size_t n = number<uint32_t>();
    if (n > left_.size() / item_bytes) fail();
    return failed_ ? 0 : n;
  }
  bool failed() const { return failed_; }
  // Everything was there, and nothing is left.
  bool finished() const { return !failed_ && left_.empty(); }

 private:
  void fail() {
    failed_ = true;
    left_ = {};
  }
  std::string_view take(size_t n) {
    if (n > left_.size()) fail();
    if (failed_) return {};
    const std::string_view taken = left_.substr(0, n);
    left_.remove_prefix(n);
    return taken;
  }
  std::string_view left_;
  bool failed_ = false;
};

}  // namespace base
}  // namespace lockstep
