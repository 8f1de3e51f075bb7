// Memory of simulated devices, and host memory for copies to and from it.
//
// Device memory has two addresses. Tensors carry the first, where no page may be touched: a host
// that reads or writes there ends with a fault that says so. The device's work finds the bytes at
// the second one. Fresh memory is poison. Freed memory is poison when the device has done what it
// was given before; then, as by CUDA's caching allocator, later work of the same stream alone gets
// it. Host memory is used again when the copies from and to it are done, and is poison then.
// Poison is 0xff: NaN in every type of float, -1 as an index.
// Thread: any.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "core/device/sim_world.h"

namespace lockstep::core {

class SimMemory {
 public:
  static SimMemory& here();

  c10::DataPtr allocate(int device, size_t bytes);
  c10::DataPtr allocate_host(size_t bytes);
  // Where the bytes of an address of device memory are.
  std::byte* bytes_at(const void* address) const;
  bool on_device(const void* address) const;
  bool from_allocate_host(const void* address);
  // A copy, done at `mark`, works on host memory. Nothing for other memory than allocate_host's.
  void used_until(const void* address, const SimMark& mark);

  int64_t allocated_bytes(int device);
  int64_t most_allocated_bytes(int device);

 private:
  struct Block {
    int device;  // kHost: none
    size_t bytes;
    std::vector<SimMark> uses = {};
  };
  SimMemory();
  std::byte* carve(std::byte*& next, size_t bytes);
  Block* find_host(const void* address);
  void release(std::byte* address);
  static void release_device(void* address);
  static void release_host(void* address);

  std::byte *faulting_, *bytes_;  // the two addresses of all device memory
  std::byte *next_, *next_host_;
  std::mutex mutex_;  // guards all below, and the two above
  std::map<std::byte*, Block> blocks_;
  std::map<std::pair<int, size_t>, std::vector<std::byte*>> free_;
  std::map<int, int64_t> allocated_, most_allocated_;
};

}  // namespace lockstep::core
