// Memory for the cases of kernels, in both places that a kernel may work on. What "device memory"
// is, each test program says: the host's for kernels that are host code, a GPU's else.
#pragma once

#include <cstddef>
#include <functional>
#include <type_traits>
#include <vector>

#include "core/kernels/kernel_types.h"

namespace lockstep::core {

// Exactly as large as asked; what it holds at first is garbage.
void* allocate_on_device(size_t bytes);
void free_on_device(void* memory);
void copy_to_device(void* to, const void* from, size_t bytes);
void copy_from_device(void* to, const void* from, size_t bytes);

// run() launches kernels and returns a hash of what they wrote. It is called several times, with
// the threads in several orders where the program can choose them: the hash must not change.
void expect_same_each_time(const std::function<uint64_t()>& run);

// n elements where kernels of `Place` work, `shift` elements behind an address that is aligned for
// accesses of 16 bytes.
template <typename Place, typename T>
class Array {
 public:
  static constexpr bool kOnHost = std::is_same_v<Place, OnCpu>;

  explicit Array(const std::vector<T>& values, size_t shift = 0)
      : count_(values.size()), shift_(shift) {
    if constexpr (kOnHost) {
      host_.resize(shift);
      host_.insert(host_.end(), values.begin(), values.end());
    } else {
      device_ = static_cast<T*>(allocate_on_device(shift * sizeof(T) + bytes()));
      copy_to_device(device_ + shift, values.data(), bytes());
    }
  }
  ~Array() {
    if constexpr (!kOnHost) free_on_device(device_);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* get() {
    if constexpr (kOnHost) return host_.data() + shift_;
    return device_ + shift_;
  }
  std::vector<T> read() const {
    if constexpr (kOnHost) return {host_.end() - static_cast<std::ptrdiff_t>(count_), host_.end()};
    std::vector<T> values(count_);
    copy_from_device(values.data(), device_ + shift_, bytes());
    return values;
  }

 private:
  size_t bytes() const { return count_ * sizeof(T); }
  size_t count_, shift_;
  std::vector<T> host_;
  T* device_ = nullptr;
};

// Runs once on the CPU: a loop has one order.
template <typename Place>
void on(const std::function<uint64_t()>& run) {
  if constexpr (std::is_same_v<Place, OnCpu>) {
    run();
  } else {
    expect_same_each_time(run);
  }
}

}  // namespace lockstep::core
