#include "core/optim/newton_schulz.h"

#include "core/kernels/kernel_table.h"
#include "core/kernels/matmul.h"
#include "layout/muon_plan.h"

namespace lockstep::core {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr double kLeastNorm = 1e-7;

// to = beta * sum + alpha * a b, rounded once.
void add_product(const at::Tensor& to, const at::Tensor& sum, const at::Tensor& a,
                 const at::Tensor& b, double beta, double alpha) {
  at::Tensor out = to;
  out.copy_(sum);
  multiply_add(a, b, out, beta, alpha);
}

}  // namespace

// Legend: S short side, L long side. x = a x + (b g + c g g) x with g = x x^T.
void orthogonalize(const at::Tensor& x, BufferPool& pool) {
  const int64_t rows = x.size(0), cols = x.size(1);
  const int64_t s = std::min(rows, cols), l = std::max(rows, cols);
  kernels_on(x).to_unit_norm(x, kLeastNorm);
  at::Tensor other = pool.take_tensor(s * l, at::kBFloat16),
             gram = pool.take_tensor(s * s, at::kBFloat16),
             square = pool.take_tensor(s * s, at::kBFloat16);
  at::Tensor g_SS = gram.view({s, s});
  const at::Tensor polynomial_SS = square.view({s, s});
  // It goes to and fro between two buffers. From the first step on it lies as [S, L].
  const at::Tensor places_SL[] = {other.view({s, l}), x.view({s, l})};
  at::Tensor now_SL = rows > cols ? x.t() : x;
  static_assert(layout::kNewtonSchulzSteps % 2 == 1, "the last step writes into `other`");
  for (int64_t step = 0; step < layout::kNewtonSchulzSteps; ++step) {
    multiply(now_SL, now_SL.t(), g_SS);
    add_product(polynomial_SS, g_SS, g_SS, g_SS, kB, kC);
    const at::Tensor& next_SL = places_SL[step % 2];
    add_product(next_SL, now_SL, polynomial_SS, now_SL, kA, 1.0);
    now_SL = next_SL;
  }
  at::Tensor(x).copy_(rows > cols ? now_SL.t() : now_SL);
  for (at::Tensor* room : {&other, &gram, &square}) pool.give_tensor(*room);
}

}  // namespace lockstep::core
