// The canonical gradient sum: the balanced binary tree over slot index, as a streaming binary
// counter (docs/ARCHITECTURE.md, rule 4). Push slot gradients in slot order; after the n-th push
// the top two partial sums merge once per trailing zero bit of n; result() folds what is left from
// the top. Any world size gives the same tree.
//
//   pushes:   g0      g1          g2        g3
//   partials: [g0]    [g0+g1]     [01][g2]  [01+(g2+g3)]
//
// Holds up to floor(log2 V) + 1 partials of `elements` fp32. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::core {

enum class Reduction {
  kTree,       // bits do not depend on the world size
  kUnordered,  // plain running sum per round: for comparison
  kNative,     // the backend's own all-reduce: for comparison
};

class FoldTree {
 public:
  FoldTree(int64_t elements, Reduction reduction) : elements_(elements), reduction_(reduction) {}

  // `parts_WS`: the gradients of one round's slots, in slot order, each `elements` of fp32 or bf16.
  void push_round(const at::Tensor& parts, int64_t part_count);
  // The sum as fp32 [elements]; the tensor is valid until the next push. Ends the step.
  at::Tensor result();

 private:
  void push(const at::Tensor& part);
  at::Tensor fresh();
  int64_t elements_;
  Reduction reduction_;
  int64_t pushes_ = 0;
  std::vector<at::Tensor> partials_;  // the stack
  std::vector<at::Tensor> spare_;     // reused, so that the steady state allocates nothing
};

}  // namespace lockstep::core
