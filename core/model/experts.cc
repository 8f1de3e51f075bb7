#include "core/model/experts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "core/kernels/element_type.h"
#include "core/kernels/kernel_table.h"
#include "core/kernels/matmul.h"
#include "core/kernels/parallel.h"
#include "core/model/stacked_weight.h"

namespace lockstep::core {
namespace {

using layout::Role;

const float* floats(const at::Tensor& t) { return t.defined() ? t.data_ptr<float>() : nullptr; }
const int64_t* longs(const at::Tensor& t) { return t.data_ptr<int64_t>(); }

// A counting sort: places of an expert are in the order of rows.
void sort_by_expert(const RouterShape& shape, Routing& r) {
  const int64_t places = r.experts_RK.numel();
  const int64_t* const experts = longs(r.experts_RK);
  r.first.assign(static_cast<size_t>(shape.experts) + 1, 0);
  for (int64_t i = 0; i < places; ++i) ++r.first[static_cast<size_t>(experts[i]) + 1];
  for (size_t e = 1; e < r.first.size(); ++e) r.first[e] += r.first[e - 1];
  r.source_P = at::empty({places}, at::kLong);
  r.token_P = at::empty({places}, at::kLong);
  r.place_RK = at::empty({places}, at::kLong);
  std::vector<int64_t> next(r.first.begin(), r.first.end() - 1);
  for (int64_t i = 0; i < places; ++i) {
    const int64_t place = next[static_cast<size_t>(experts[i])]++;
    r.source_P.data_ptr<int64_t>()[place] = i;
    r.token_P.data_ptr<int64_t>()[place] = i / shape.chosen;
    r.place_RK.data_ptr<int64_t>()[i] = place;
  }
}

// Calls f(e, first place, places) for every expert.
template <typename F>
void for_each_expert(const Routing& r, F&& f) {
  for (size_t e = 0; e + 1 < r.first.size(); ++e)
    f(static_cast<int>(e), r.first[e], r.first[e + 1] - r.first[e]);
}

}  // namespace

Experts::Experts(const layout::DecoderShape& shape, const layout::UnitSpec& unit)
    : shape_{shape.experts, shape.experts_per_token, shape.normed_routing},
      width_(shape.ffn_dim),
      router_(unit.find(Role::kRouter)),
      gate_(unit.find(Role::kGate)),
      down_(unit.find(Role::kDown)) {
  LOCKSTEP_CHECK(router_ >= 0 && gate_ >= 0 && down_ == gate_ + 2 * shape.experts, unit.name);
}

Routing Experts::route(const UnitPart& unit, const at::Tensor& h_RD) const {
  LOCKSTEP_CHECK(h_RD.is_cpu(), "experts run on CPUs only");
  const at::Tensor logits = product(h_RD, unit.weight(router_).t());
  const int64_t rows = h_RD.size(0), e = shape_.experts, k = shape_.chosen;
  Routing r;
  r.probabilities_RE = at::empty({rows, e}, at::kFloat);
  r.weights_RK = at::empty({rows, k}, at::kFloat);
  r.experts_RK = at::empty({rows, k}, at::kLong);
  by_type(logits, [&](auto* t) {
    parallel_rows(rows, e * k, [&](int64_t begin, int64_t end) {
      core::route<OnCpu>(ptr(t, logits) + begin * e, end - begin, shape_,
                         r.probabilities_RE.data_ptr<float>() + begin * e,
                         r.experts_RK.data_ptr<int64_t>() + begin * k,
                         r.weights_RK.data_ptr<float>() + begin * k);
    });
  });
  sort_by_expert(shape_, r);
  return r;
}

at::Tensor Experts::inner(const UnitPart& unit, const at::Tensor& h_RD, const Routing& r) const {
  const at::Tensor x_PD = h_RD.index_select(0, r.token_P);
  const at::Tensor y_P2F = at::empty({x_PD.size(0), 2 * width_}, x_PD.options());
  for_each_expert(r, [&](int e, int64_t first, int64_t n) {
    if (n == 0) return;
    at::Tensor out = y_P2F.narrow(0, first, n);
    multiply(x_PD.narrow(0, first, n), stacked_weight(unit, gate_ + 2 * e, 2).t(), out);
  });
  return y_P2F;
}

at::Tensor Experts::weighed(const at::Tensor& s_PF, const Routing& r) const {
  const at::Tensor out = at::empty_like(s_PF);
  by_type(s_PF, [&](auto* t) {
    parallel_rows(s_PF.size(0), width_, [&](int64_t begin, int64_t end) {
      weigh_places<OnCpu>(ptr(t, s_PF) + begin * width_, floats(r.weights_RK),
                          longs(r.source_P) + begin, end - begin, width_,
                          ptr(t, out) + begin * width_);
    });
  });
  return out;
}

at::Tensor Experts::added(const at::Tensor& y_PD, const Routing& r) const {
  const int64_t rows = r.weights_RK.size(0), dim = y_PD.size(1), k = shape_.chosen;
  const at::Tensor out = at::empty({rows, dim}, y_PD.options());
  by_type(y_PD, [&](auto* t) {
    parallel_rows(rows, k * dim, [&](int64_t begin, int64_t end) {
      add_places<OnCpu>(ptr(t, y_PD), longs(r.place_RK) + begin * k, end - begin, k, dim,
                        ptr(t, out) + begin * dim);
    });
  });
  return out;
}

// The weights meet the narrower side of the last product.
at::Tensor Experts::outer(const UnitPart& unit, const at::Tensor& s_PF, const Routing& r) const {
  const at::Tensor w_PF = weighed(s_PF, r);
  const at::Tensor y_PD = at::empty({s_PF.size(0), unit.weight(down_).size(0)}, s_PF.options());
  for_each_expert(r, [&](int e, int64_t first, int64_t n) {
    if (n == 0) return;
    at::Tensor out = y_PD.narrow(0, first, n);
    multiply(w_PF.narrow(0, first, n), unit.weight(down_ + e).t(), out);
  });
  return added(y_PD, r);
}

at::Tensor Experts::outer_back(const UnitPart& unit, const at::Tensor& dy_RD, Kept& kept,
                               at::Tensor& d_weights_RK) const {
  const Routing& r = kept.routing;
  const at::Tensor s_PF = std::move(kept.s_PF);
  at::Tensor d_PF;
  {
    const at::Tensor dy_PD = dy_RD.index_select(0, r.token_P), w_PF = weighed(s_PF, r);
    d_PF = at::empty_like(s_PF);
    for_each_expert(r, [&](int e, int64_t first, int64_t n) {
      const at::Tensor dy = dy_PD.narrow(0, first, n);
      if (!unit.spec().frozen) {
        at::Tensor grad = unit.grad(down_ + e);
        multiply(dy.t(), w_PF.narrow(0, first, n), grad);
      }
      if (n == 0) return;
      at::Tensor out = d_PF.narrow(0, first, n);
      multiply(dy, unit.weight(down_ + e), out);
    });
  }
  by_type(s_PF, [&](auto* t) {
    parallel_rows(s_PF.size(0), width_, [&](int64_t begin, int64_t end) {
      weigh_places_backward<OnCpu>(ptr(t, d_PF) + begin * width_, ptr(t, s_PF) + begin * width_,
                                   floats(r.weights_RK), longs(r.source_P) + begin, end - begin,
                                   width_, d_weights_RK.data_ptr<float>());
    });
  });
  return kernels_on(d_PF).swiglu_back(d_PF, std::move(kept.inner_P2F));
}

at::Tensor Experts::inner_back(const UnitPart& unit, const at::Tensor& d_inner,
                               const Kept& kept) const {
  const Routing& r = kept.routing;
  at::Tensor x_PD = kept.h_RD.index_select(0, r.token_P);
  const at::Tensor dx_PD = at::empty_like(x_PD);
  for_each_expert(r, [&](int e, int64_t first, int64_t n) {
    const at::Tensor d = d_inner.narrow(0, first, n);
    if (!unit.spec().frozen)
      stacked_weight_grad(unit, gate_ + 2 * e, 2, d, x_PD.narrow(0, first, n));
    if (n == 0) return;
    at::Tensor out = dx_PD.narrow(0, first, n);
    multiply(d, stacked_weight(unit, gate_ + 2 * e, 2), out);
  });
  x_PD.reset();
  return added(dx_PD, r);
}

void Experts::router_back(const UnitPart& unit, const at::Tensor& d_weights_RK, const Kept& kept,
                          const at::Tensor& d_probabilities_E, at::Tensor& dh_RD) const {
  const Routing& r = kept.routing;
  const int64_t rows = dh_RD.size(0), e = shape_.experts, k = shape_.chosen;
  const at::Tensor d_logits = at::empty({rows, e}, dh_RD.options());
  by_type(d_logits, [&](auto* t) {
    parallel_rows(rows, e, [&](int64_t begin, int64_t end) {
      route_backward<OnCpu>(floats(r.probabilities_RE) + begin * e, longs(r.experts_RK) + begin * k,
                            floats(r.weights_RK) + begin * k, floats(d_weights_RK) + begin * k,
                            floats(d_probabilities_E), end - begin, shape_,
                            ptr(t, d_logits) + begin * e);
    });
  });
  if (!unit.spec().frozen) {
    at::Tensor grad = unit.grad(router_);
    multiply(d_logits.t(), kept.h_RD, grad);
  }
  dh_RD.add_(product(d_logits, unit.weight(router_)));
}

at::Tensor Experts::backward(const UnitPart& unit, at::Tensor dy_RD, Kept kept,
                             const at::Tensor& d_probabilities_E) const {
  at::Tensor d_weights_RK = at::empty_like(kept.routing.weights_RK);
  at::Tensor d_inner = outer_back(unit, dy_RD, kept, d_weights_RK);
  dy_RD.reset();
  at::Tensor dh_RD = inner_back(unit, d_inner, kept);
  d_inner.reset();
  router_back(unit, d_weights_RK, kept, d_probabilities_E, dh_RD);
  return dh_RD;
}

}  // namespace lockstep::core
