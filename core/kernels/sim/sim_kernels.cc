#include "core/kernels/sim/sim_kernels.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "core/device/sim_device.h"
#include "core/kernels/attention.h"
#include "core/kernels/initial_kernels.h"
#include "core/kernels/kernel_table.h"
#include "core/kernels/sim/sim_operations.h"

namespace lockstep::core {
namespace {

const Kernels& cpu() { return kernels_on(at::kCPU); }

template <typename T>
T* bytes_of(T* address) {
  return reinterpret_cast<T*>(SimMemory::here().bytes_at(address));
}
template <typename T>
const T* bytes_of(const T* address) {
  return reinterpret_cast<const T*>(SimMemory::here().bytes_at(address));
}

template <typename T>
T* bytes_or_null(T* address) {
  return address == nullptr ? nullptr : bytes_of(address);
}

at::Tensor fp32(const at::Tensor& like, at::IntArrayRef shape) {
  return at::empty(shape, like.options().dtype(at::kFloat));
}

using T = at::Tensor;

class SimKernels : public Kernels {
 public:
  layout::WorkSizes work_sizes() const override { return cpu().work_sizes(); }
  // A residual is added by an operation of its own, with the same bits.
  T add_rms_norm_(const T& x, const T& residual, const T& w, double eps, T& scale,
                  float offset) const override {
    if (residual.defined()) T(x).add_(residual);
    T y = at::empty_like(x);
    head_norm(x, w, y, scale, 0, 1, eps, offset);
    return y;
  }
  T rms_norm_back(T dy, const T& x, const T& w, const T& scale, const T& residual, const T& dw_sum,
                  float offset) const override {
    sim_work(
        "rms_norm_back", x,
        [=](T d, const T& in, const T& weight, const T& s, const T& r, const T& sum) {
          cpu().rms_norm_back(d, in, weight, s, r, sum, offset);
        },
        dy, x, w, scale, residual, dw_sum);
    return dy;
  }
  void head_norm(const T& x, const T& w, const T& y, T& scale, int64_t first_column, int64_t heads,
                 double eps, float offset) const override {
    scale = fp32(x, {x.size(0), heads});
    sim_work(
        "head_norm", x,
        [=](const T& in, const T& weight, const T& out, const T& kept) {
          T made;
          cpu().head_norm(in, weight, out, made, first_column, heads, eps, offset);
          kept.copy_(made);
        },
        x, w, y, scale);
  }
  void head_norm_back(const T& dy, const T& x, const T& w, const T& scale, const T& dw_sum,
                      int64_t first_column, int64_t heads, float offset) const override {
    sim_work(
        "head_norm_back", x,
        [=](const T& d, const T& in, const T& weight, const T& s, const T& sum) {
          cpu().head_norm_back(d, in, weight, s, sum, first_column, heads, offset);
        },
        dy, x, w, scale, dw_sum);
  }
  T add_layer_norm_(const T& x, const T& residual, const T& w, const T& b, double eps,
                    T& stats) const override {
    if (residual.defined()) T(x).add_(residual);
    T y = at::empty_like(x);
    stats = fp32(x, {x.size(0), 2});
    sim_work(
        "add_layer_norm_", x,
        [=](const T& in, const T& weight, const T& bias, const T& out, const T& kept) {
          T made;
          out.copy_(cpu().add_layer_norm_(in, {}, weight, bias, eps, made));
          kept.copy_(made);
        },
        x, w, b, y, stats);
    return y;
  }
  T layer_norm_back(T dy, const T& x, const T& w, const T& stats, const T& residual,
                    const T& dw_sum, const T& db_sum) const override {
    sim_work(
        "layer_norm_back", x,
        [](T d, const T& in, const T& weight, const T& s, const T& r, const T& dw, const T& db) {
          cpu().layer_norm_back(d, in, weight, s, r, dw, db);
        },
        dy, x, w, stats, residual, dw_sum, db_sum);
    return dy;
  }

  void rotate_rows(const T& x, const RotaryTable& table, const T& positions, int64_t heads,
                   int64_t head_dim, float direction) const override {
    sim_work(
        "rotate_rows", x,
        [=](const T& rows, const T& cos, const T& sin, const T& at) {
          cpu().rotate_rows(rows, {cos, sin}, at, heads, head_dim, direction);
        },
        x, table.cos_TH, table.sin_TH, positions);
  }
  T swiglu(const T& gate_up) const override {
    T y = at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
    sim_work(
        "swiglu", y, [](const T& in, const T& out) { out.copy_(cpu().swiglu(in)); }, gate_up, y);
    return y;
  }
  T swiglu_back(const T& dy, T gate_up) const override {
    sim_work(
        "swiglu_back", dy, [](const T& d, T in) { cpu().swiglu_back(d, in); }, dy, gate_up);
    return gate_up;
  }
  T geglu(const T& gate_up) const override {
    T y = at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
    sim_work(
        "geglu", y, [](const T& in, const T& out) { out.copy_(cpu().geglu(in)); }, gate_up, y);
    return y;
  }
  T geglu_back(const T& dy, T gate_up) const override {
    sim_work(
        "geglu_back", dy, [](const T& d, T in) { cpu().geglu_back(d, in); }, dy, gate_up);
    return gate_up;
  }
  T gelu_new(const T& x) const override {
    T y = at::empty_like(x);
    sim_work(
        "gelu_new", x, [](const T& in, const T& out) { out.copy_(cpu().gelu_new(in)); }, x, y);
    return y;
  }
  T gelu_new_back(const T& dy, T x) const override {
    sim_work(
        "gelu_new_back", dy, [](const T& d, T in) { cpu().gelu_new_back(d, in); }, dy, x);
    return x;
  }
  void soft_cap(const T& x, float scale, float cap) const override {
    sim_work(
        "soft_cap", x, [=](const T& in) { cpu().soft_cap(in, scale, cap); }, x);
  }
  void soft_cap_back(const T& y, const T& dy, float scale, float cap) const override {
    sim_work(
        "soft_cap_back", y,
        [=](const T& out, const T& d) { cpu().soft_cap_back(out, d, scale, cap); }, y, dy);
  }
  void dropout(const T& x, const DropoutDraw& draw) const override {
    sim_work(
        "dropout", x, [=](const T& in) { cpu().dropout(in, draw); }, x);
  }

  // In LibTorch's operations, as the CPU does it.
  T attention(const AttentionShape& shape, const T& qkv, const Documents& documents,
              AttentionKept& kept) const override {
    return attend(*this, shape, qkv, documents, kept);
  }
  T attention_back(const AttentionShape& shape, const T& d_out, const T& qkv,
                   const Documents& documents, const AttentionKept& kept) const override {
    return attend_back(*this, shape, d_out, qkv, documents, kept);
  }
  void softmax_of_seen(const T& scores, const ScoreBlock& block, float scale) const override {
    sim_work(
        "softmax_of_seen", scores, [=](const T& s) { cpu().softmax_of_seen(s, block, scale); },
        scores);
  }
  void softmax_of_seen_back(const T& p, const T& dp, const ScoreBlock& block,
                            float scale) const override {
    sim_work(
        "softmax_of_seen_back", p,
        [=](const T& q, const T& dq) { cpu().softmax_of_seen_back(q, dq, block, scale); }, p, dp);
  }
  void cross_entropy(const T& logits, const T& labels, const TokenLoss& loss, float dy,
                     bool want_gradients, const T& losses) const override {
    sim_work(
        "cross_entropy", logits,
        [=](const T& l, const T& label, const T& out) {
          cpu().cross_entropy(l, label, loss, dy, want_gradients, out);
        },
        logits, labels, losses);
  }

  void add_columns(const T& sum, const T& dy, int64_t first_column) const override {
    sim_work(
        "add_columns", dy, [=](const T& s, const T& d) { cpu().add_columns(s, d, first_column); },
        sum, dy);
  }
  void add_rows(const T& sum, const T& dy, const T& to_row) const override {
    sim_work(
        "add_rows", dy, [](const T& s, const T& d, const T& rows) { cpu().add_rows(s, d, rows); },
        sum, dy, to_row);
  }
  void add_product(const T& sum, const T& a, const T& b) const override {
    sim_work(
        "add_product", sum, [](const T& s, const T& x, const T& y) { cpu().add_product(s, x, y); },
        sum, a, b);
  }
  void fold(const T& out, std::span<const T> parts, std::span<const T> sums) const override {
    sim_launch(out, "fold", [to = SimView(out), from = views_of(parts), with = views_of(sums)] {
      cpu().fold(to.tensor(), tensors_of(from), tensors_of(with));
    });
  }
  void narrow(const T& out, const T& in) const override {
    sim_work(
        "narrow", out, [](const T& to, const T& from) { cpu().narrow(to, from); }, out, in);
  }
  void adamw_update(const AdamWStep& step, std::span<const AdamWRun<float>> runs) const override {
    update_runs(step, runs);
  }
  void adamw_update(const AdamWStep& step, std::span<const AdamWRun<Bf16>> runs) const override {
    update_runs(step, runs);
  }
  void scale_and_square_tiles(float* grad, float scale, int64_t tiles,
                              double* sums_out) const override {
    on_current("scale_and_square_tiles", [=, g = bytes_of(grad), sums = bytes_of(sums_out)] {
      cpu().scale_and_square_tiles(g, scale, tiles, sums);
    });
  }
  void sum_subtrees(const T& leaves, std::span<const layout::SlotRun> runs,
                    const T& sums) const override {
    sim_work(
        "sum_subtrees", leaves,
        [all = std::vector(runs.begin(), runs.end())](const T& in, const T& out) {
          cpu().sum_subtrees(in, all, out);
        },
        leaves, sums);
  }
  void digest_runs(const T& flat, std::span<const DigestRun> runs, const T& sums) const override {
    sim_work(
        "digest_runs", flat,
        [all = std::vector(runs.begin(), runs.end())](const T& in, const T& out) {
          cpu().digest_runs(in, all, out);
        },
        flat, sums);
  }
  void draw_initial(const T& out, const InitialDraw& draw) const override {
    sim_work(
        "draw_initial", out, [=](const T& o) { cpu().draw_initial(o, draw); }, out);
  }
  void muon_momentum(const MuonStep& step, const float* grad, float* m, at::BFloat16* out,
                     int64_t n) const override {
    on_current("muon_momentum", [=, g = bytes_of(grad), m1 = bytes_of(m), to = bytes_or_null(out)] {
      cpu().muon_momentum(step, g, m1, to, n);
    });
  }
  void muon_update(const MuonStep& step, const at::BFloat16* update, float* master, Bf16* copy,
                   int64_t n) const override {
    on_current("muon_update", [=, u = bytes_of(update), w = bytes_of(master),
                               to = bytes_or_null(copy)] { cpu().muon_update(step, u, w, to, n); });
  }
  void to_unit_norm(const T& x, double least) const override {
    sim_work(
        "to_unit_norm", x, [least](const T& matrix) { cpu().to_unit_norm(matrix, least); }, x);
  }

 private:
  static std::vector<SimView> views_of(std::span<const T> tensors) {
    return {tensors.begin(), tensors.end()};
  }
  static std::vector<T> tensors_of(const std::vector<SimView>& views) {
    std::vector<T> tensors;
    for (const SimView& view : views) tensors.push_back(view.tensor());
    return tensors;
  }
  template <typename Moment>
  static void update_runs(const AdamWStep& step, std::span<const AdamWRun<Moment>> runs) {
    std::vector<AdamWRun<Moment>> there(runs.begin(), runs.end());
    for (AdamWRun<Moment>& r : there) {
      r.grad = bytes_of(r.grad);
      r.master = bytes_of(r.master);
      r.m = bytes_of(r.m);
      r.v = bytes_of(r.v);
      r.copy = bytes_or_null(r.copy);
    }
    on_current("adamw_update", [step, there = std::move(there)] {
      cpu().adamw_update(step, std::span<const AdamWRun<Moment>>(there));
    });
  }
  static void on_current(const char* name, std::function<void()> work) {
    SimWorld::here().give(queue_of(*sim_device().current_stream()), {name, std::move(work)});
  }
};

}  // namespace

void use_sim() {
  static const SimKernels kernels;
  use_sim_device();
  register_sim_operations();
  add_kernels(kSim, kernels);
}

}  // namespace lockstep::core
