// Memory that is taken and given back all the time: reused, nothing allocated in the steady state,
// nothing zeroed. An idle buffer also serves a smaller request (layout/best_fit.h). A tensor of it
// may stay; the memory under its storage comes and goes. On a device whoever gives memory may still
// have work under way on it: what takes it next comes after that, on the same stream or in a
// collective.
// Thread: the training thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <map>
#include <unordered_map>
#include <vector>

namespace lockstep::core {

class BufferPool {
 public:
  explicit BufferPool(at::Device device = at::kCPU) : device_(device) {}
  // At least `bytes`, which is not 0.
  c10::DataPtr take(size_t bytes);
  // `buffer` is one that take gave, and nobody else uses it any more.
  void give(c10::DataPtr buffer);

  // The same as a 1-D tensor. give_tensor: any view of it that has its storage; undefined is fine.
  at::Tensor take_tensor(int64_t elements, at::ScalarType dtype);
  void give_tensor(at::Tensor& t);

  size_t allocated_bytes() const { return allocated_bytes_; }

 private:
  at::Device device_;
  std::map<int64_t, std::vector<c10::DataPtr>> idle_;  // by size
  std::unordered_map<const void*, int64_t> bytes_of_;  // of all, by address
  size_t allocated_bytes_ = 0;
};

// What a rank's units share. Where sums stay open depends on how many slots a step has, so these
// have a pool of their own: the other one goes through the same in every round.
struct Pools {
  explicit Pools(at::Device device = at::kCPU) : exchanged(device), sums(device) {}
  BufferPool exchanged;  // gathered units; gradients that are written, sent and received
  BufferPool sums;       // over slots: FoldTree's
};

}  // namespace lockstep::core
