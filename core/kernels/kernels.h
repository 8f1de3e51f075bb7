// Every operation of a training step that is not LibTorch's own: a row of the table is a method, a
// column is a class, for a kind of device. LibTorch's own operations are chosen by the tensor's
// device as well, in its own table. On tensors of one compute dtype (fp32 or bf16), contiguous,
// where nothing else is said; sums and what is kept for backward are fp32. The order of a sum
// depends on shapes alone; the CPU's bits do not depend on how many threads share the work.
// Legend: R rows = B*T, D model dim, F feed-forward dim, H query heads, K key heads, E head_dim, V
// vocabulary. Thread: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/kernels/adamw_kernels.h"
#include "core/kernels/attention_shape.h"
#include "core/kernels/digest_kernels.h"
#include "core/kernels/documents.h"
#include "core/kernels/dropout_kernels.h"
#include "core/kernels/muon_kernels.h"
#include "core/kernels/rotary_table.h"
#include "core/kernels/softmax_kernels.h"
#include "layout/stage_sizes.h"

namespace lockstep::core {

struct InitialDraw;

class Kernels {
 public:
  virtual ~Kernels() = default;

  // What the stages cut their work for.
  virtual layout::WorkSizes work_sizes() const = 0;

  // A name that ends in _ changes its first tensor in place: x += residual (undefined: none),
  // rounded. Returns y, the RMSNorm of that x; scale_R1 is made, and kept for backward. `offset` is
  // added to the weight.
  virtual at::Tensor add_rms_norm_(const at::Tensor& x_RD, const at::Tensor& residual_RD,
                                   const at::Tensor& w_D, double eps, at::Tensor& scale_R1,
                                   float offset = 0) const = 0;
  // Returns residual (undefined: none) + dx, in dy's memory; adds to dw_sum_D.
  virtual at::Tensor rms_norm_back(at::Tensor dy_RD, const at::Tensor& x_RD, const at::Tensor& w_D,
                                   const at::Tensor& scale_R1, const at::Tensor& residual_RD,
                                   const at::Tensor& dw_sum_D, float offset = 0) const = 0;
  // RMSNorm over each head of E: columns [first_column, + heads * E) of x into the same ones of y;
  // scale_RH [R, heads] is made.
  virtual void head_norm(const at::Tensor& x, const at::Tensor& w_E, const at::Tensor& y,
                         at::Tensor& scale_RH, int64_t first_column, int64_t heads, double eps,
                         float offset = 0) const = 0;
  // dy's columns become their gradient.
  virtual void head_norm_back(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w_E,
                              const at::Tensor& scale_RH, const at::Tensor& dw_sum_E,
                              int64_t first_column, int64_t heads, float offset = 0) const = 0;
  // LayerNorm, as add_rms_norm_; stats_R2 is made, and kept for backward.
  virtual at::Tensor add_layer_norm_(const at::Tensor& x_RD, const at::Tensor& residual_RD,
                                     const at::Tensor& w_D, const at::Tensor& b_D, double eps,
                                     at::Tensor& stats_R2) const = 0;
  // As rms_norm_back; adds to dw_sum_D and db_sum_D.
  virtual at::Tensor layer_norm_back(at::Tensor dy_RD, const at::Tensor& x_RD,
                                     const at::Tensor& w_D, const at::Tensor& stats_R2,
                                     const at::Tensor& residual_RD, const at::Tensor& dw_sum_D,
                                     const at::Tensor& db_sum_D) const = 0;

  // In place on the first `heads` heads of each row of x, which is at its place of positions_R.
  virtual void rotate_rows(const at::Tensor& x, const RotaryTable& table,
                           const at::Tensor& positions_R, int64_t heads, int64_t head_dim,
                           float direction) const = 0;
  virtual at::Tensor swiglu(const at::Tensor& gate_up_R2F) const = 0;
  // Returns the gradient, in gate_up's memory.
  virtual at::Tensor swiglu_back(const at::Tensor& dy_RF, at::Tensor gate_up_R2F) const = 0;
  virtual at::Tensor geglu(const at::Tensor& gate_up_R2F) const = 0;
  virtual at::Tensor geglu_back(const at::Tensor& dy_RF, at::Tensor gate_up_R2F) const = 0;
  virtual at::Tensor gelu_new(const at::Tensor& x) const = 0;
  // Returns the gradient, in x's memory.
  virtual at::Tensor gelu_new_back(const at::Tensor& dy, at::Tensor x) const = 0;
  // x = cap tanh(scale x / cap), in place; and its gradient in dy's place, from what that gave.
  virtual void soft_cap(const at::Tensor& x, float scale, float cap) const = 0;
  virtual void soft_cap_back(const at::Tensor& y, const at::Tensor& dy, float scale,
                             float cap) const = 0;
  // x, a whole tensor, is drawn for in place.
  virtual void dropout(const at::Tensor& x, const DropoutDraw& draw) const = 0;

  // qkv [R, (H + 2K) E], as projected and rotated -> [R, H*E].
  virtual at::Tensor attention(const AttentionShape& shape, const at::Tensor& qkv,
                               const Documents& documents, AttentionKept& kept) const = 0;
  // Returns d(qkv) for d_out [R, H*E].
  virtual at::Tensor attention_back(const AttentionShape& shape, const at::Tensor& d_out_RD,
                                    const at::Tensor& qkv, const Documents& documents,
                                    const AttentionKept& kept) const = 0;
  // core::masked_softmax and its gradient, in place on stacks of blocks [stacks, rows, keys].
  virtual void softmax_of_seen(const at::Tensor& scores, const ScoreBlock& block,
                               float scale) const = 0;
  virtual void softmax_of_seen_back(const at::Tensor& p, const at::Tensor& dp,
                                    const ScoreBlock& block, float scale) const = 0;
  // core::cross_entropy of the rows; losses_R is fp64.
  virtual void cross_entropy(const at::Tensor& logits_RV, const at::Tensor& labels_R,
                             const TokenLoss& loss, float dy, bool want_gradients,
                             const at::Tensor& losses_R) const = 0;

  // sum_C += the column sums of dy [R, first_column + C, …].
  virtual void add_columns(const at::Tensor& sum_C, const at::Tensor& dy,
                           int64_t first_column) const = 0;
  // Row to_row[r] of sum += row r of dy, for all r in order: the same bits on every device.
  virtual void add_rows(const at::Tensor& sum_VD, const at::Tensor& dy_RD,
                        const at::Tensor& to_row_R) const = 0;
  // sum += a b, from factors of the compute dtype.
  virtual void add_product(const at::Tensor& sum, const at::Tensor& a,
                           const at::Tensor& b) const = 0;

  // The rest has the same bits on every device. core::fold, of parts in fp32 or bf16; out bf16 = in
  // fp32, rounded once.
  virtual void fold(const at::Tensor& out, std::span<const at::Tensor> parts,
                    std::span<const at::Tensor> sums) const = 0;
  virtual void narrow(const at::Tensor& out, const at::Tensor& in) const = 0;
  // core::adamw_update and scale_and_square_tiles, on memory of the device.
  virtual void adamw_update(const AdamWStep& step, std::span<const AdamWRun<float>> runs) const = 0;
  virtual void adamw_update(const AdamWStep& step, std::span<const AdamWRun<Bf16>> runs) const = 0;
  virtual void scale_and_square_tiles(float* grad, float scale, int64_t tiles,
                                      double* sums_out) const = 0;
  // core::sum_subtrees of leaves in fp64: sums[i] is that of runs[i].
  virtual void sum_subtrees(const at::Tensor& leaves, std::span<const layout::SlotRun> runs,
                            const at::Tensor& sums) const = 0;
  // sums_out[i], of int64 on the same device, is the digest of run i of the elements of `flat`.
  virtual void digest_runs(const at::Tensor& flat, std::span<const DigestRun> runs,
                           const at::Tensor& sums_out) const = 0;
  // core::draw_initial.
  virtual void draw_initial(const at::Tensor& out, const InitialDraw& draw) const = 0;
  // core::muon_momentum and muon_update, on memory of the device; elements of bf16 are LibTorch's.
  virtual void muon_momentum(const MuonStep& step, const float* grad, float* m, at::BFloat16* out,
                             int64_t n) const = 0;
  virtual void muon_update(const MuonStep& step, const at::BFloat16* update, float* master,
                           Bf16* copy, int64_t n) const = 0;
  // x, bf16, is divided by its Frobenius norm, or by `least` where that is larger. Bits as LibTorch
  // has them for the device.
  virtual void to_unit_norm(const at::Tensor& x, double least) const = 0;
};

}  // namespace lockstep::core
