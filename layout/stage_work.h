// What the stages of the model compute in a slot, kernel by kernel: the operations of core/model/
// and core/kernels/, with their FLOPs and bytes. As memory_stages.h does for tensors; who changes
// what these compute changes it here.
// Legend: R rows = B*T, D model dim, H query heads, K key heads, E head_dim, F feed-forward dim,
// V vocabulary.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "layout/device_rates.h"
#include "layout/model_spec.h"

namespace lockstep::layout {

inline double as_double(int64_t n) { return static_cast<double>(n); }

enum class Engine {
  kProduct,            // of the matrix library
  kAttention,          // a fused kernel, forward; a block's products on a CPU
  kAttentionBackward,  // … backward
  kKernel,             // one of ours
  kCopy,               // of LibTorch: copies, fills, sums of whole tensors
};

// One kernel of a step. A device takes for it the longest of its FLOPs, bytes and exponentials at
// the device's rates, as if they overlapped perfectly, and what a kernel costs beside them.
struct Operation {
  const char* what = "";
  Engine engine = Engine::kKernel;
  int64_t width = 4;  // bytes of an element: 2 is bf16
  double flops = 0, bytes = 0, exps = 0;
  double serial_s = 0;  // a chain of loads that no wider device shortens
  int64_t times = 1;    // as many kernels, and what stands above is each one's
  double share = 1;     // of the engine's rate for FLOPs
};

inline double product_rate(const Operation& op, const DeviceRates& rates) {
  const double tflops = op.width == 2 ? rates.bf16_gemm_tflops : rates.fp32_gemm_tflops;
  const double share = op.engine == Engine::kAttention           ? rates.attention_share
                       : op.engine == Engine::kAttentionBackward ? rates.attention_backward_share
                                                                 : 1.0;
  return tflops * share * op.share * 1e12;
}

inline double byte_rate(const Operation& op, const DeviceRates& rates) {
  const double share = op.engine != Engine::kKernel ? 1.0
                       : op.width == 2              ? rates.bf16_kernel_share
                                                    : rates.fp32_kernel_share;
  return rates.memory_gb_per_s * share * 1e9;
}

inline double seconds_of(const Operation& op, const DeviceRates& rates) {
  const double work = std::max({op.flops / product_rate(op, rates), op.bytes / byte_rate(op, rates),
                                op.exps / (rates.exponentials_per_ns * 1e9), op.serial_s});
  return static_cast<double>(op.times) * (work + rates.kernel_us * 1e-6);
}

using Operations = std::vector<Operation>;

class StageWork {
 public:
  // Borrows all.
  StageWork(const Config& config, const ModelSpec& spec, const DeviceRates& rates);

  Operations embedding_forward() const;
  Operations layer_forward(int64_t layer) const;
  // Forward and backward of the head, and the loss.
  Operations head() const;
  // What backward computes again where a block kept its input alone; else nothing.
  Operations layer_again(int64_t layer) const;
  Operations layer_backward(int64_t layer) const;
  Operations embedding_backward() const;

  // Scores that attention of `layer` computes, of all heads: on a GPU's fused kernel those that a
  // query sees; else those of whole blocks of queries.
  double scores(int64_t layer) const;
  // Is attention of `layer` cuDNN's (core/kernels/cudnn_attention.h)? Of packed documents it is
  // LibTorch's flash kernel all the same.
  bool cudnn(int64_t layer) const;
  // LibTorch's flash kernel keeps sums of dq for each of so many runs of key blocks, in fp32
  // (FlashAttention-2, deterministic).
  int64_t flash_splits() const;
  // Is attention one of the two?
  bool fused_on_gpu() const { return flash_; }

 private:
  void block_run(int64_t layer, Operations& ops) const;
  Operation of_experts(const char* what, int64_t out, int64_t in, bool of_weight) const;
  void experts(Operations& ops) const;
  void experts_end(Operations& ops) const;
  void experts_back(bool frozen, Operations& ops) const;
  void attention(int64_t layer, Operations& ops) const;
  void attention_back(int64_t layer, Operations& ops) const;
  double attention_share(int64_t layer) const;
  void blocks_of_attention(int64_t layer, bool backward, Operations& ops) const;
  void linear(const char* what, Role first, int count, int64_t layer, Operations& ops) const;
  void linear_back(const char* what, Role first, int count, int64_t layer, Operations& ops) const;
  void norm_back(const char* what, bool residual, Operations& ops) const;
  void head_chunks(Operations& ops) const;
  void head_chunk(int64_t rows, int64_t times, bool alone, Operations& ops) const;
  const UnitSpec& head_weight_unit() const;
  void low_rank(Role first, int count, int64_t layer, bool backward, Operations& ops) const;
  Operation product(const char* what, int64_t m, int64_t n, int64_t k) const;
  Operation kernel(const char* what, double bytes, double exps = 0) const;
  const UnitSpec& block(int64_t layer) const;

  const DecoderShape& shape_;
  const ModelSpec& spec_;
  const DeviceRates& rates_;
  int64_t batch_, seq_len_, rows_, width_, recompute_every_;
  bool flash_, fused_, dropout_;
  // Bytes of a block's tensors.
  double x_ = 0, qkv_ = 0, attention_ = 0, keys_ = 0, inner_ = 0, s_ = 0;
};

}  // namespace lockstep::layout
