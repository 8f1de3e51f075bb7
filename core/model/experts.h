// The feed-forward branch as a mixture of experts (Mixtral, Qwen3-MoE): a router sends each row to
// the K likeliest of E experts, whose outputs are added up with the router's weights. On the CPU
// alone. Nothing depends on ranks or threads: rows go to experts in their order, and an expert that
// no row was sent to has a gradient of zeros.
// Legend: R rows, D model dim, E experts, K chosen of a row, P = R*K places, expert by expert, F
// width of an expert.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/kernels/expert_kernels.h"
#include "core/sharding/unit.h"
#include "layout/model_spec.h"

namespace lockstep::core {

// What the router said of a slot's rows.
struct Routing {
  at::Tensor probabilities_RE, weights_RK;  // fp32
  at::Tensor experts_RK;                    // int64, the likeliest first
  at::Tensor source_P, token_P;             // int64: of a place r * K + k, and r
  at::Tensor place_RK;                      // int64
  std::vector<int64_t> first;               // by expert its first place; at the end P
};

class Experts {
 public:
  // The unit's router, and its experts' matrices: gate and up of each, then down of each.
  Experts(const layout::DecoderShape& shape, const layout::UnitSpec& unit);
  Routing route(const UnitPart& unit, const at::Tensor& h_RD) const;
  // What the activation takes, [P, 2F].
  at::Tensor inner(const UnitPart& unit, const at::Tensor& h_RD, const Routing& routing) const;
  // The branch [R, D] from what the activation gives.
  at::Tensor outer(const UnitPart& unit, const at::Tensor& s_PF, const Routing& routing) const;
  struct Kept {
    at::Tensor h_RD, inner_P2F, s_PF;
    Routing routing;
  };
  // Returns dh; writes the gradients of what is trained. `d_probabilities_E`: of every row's
  // probabilities, beside what comes from dy; undefined: none.
  at::Tensor backward(const UnitPart& unit, at::Tensor dy_RD, Kept kept,
                      const at::Tensor& d_probabilities_E) const;

 private:
  at::Tensor weighed(const at::Tensor& s_PF, const Routing& routing) const;
  at::Tensor added(const at::Tensor& y_PD, const Routing& routing) const;
  // d(inner), through `down` and the weights; writes the gradients of `down`.
  at::Tensor outer_back(const UnitPart& unit, const at::Tensor& dy_RD, Kept& kept,
                        at::Tensor& d_weights_RK) const;
  at::Tensor inner_back(const UnitPart& unit, const at::Tensor& d_inner, const Kept& kept) const;
  void router_back(const UnitPart& unit, const at::Tensor& d_weights_RK, const Kept& kept,
                   const at::Tensor& d_probabilities_E, at::Tensor& dh_RD) const;

  RouterShape shape_;
  int64_t width_;
  int router_, gate_, down_;  // the first parameter of each kind
};

}  // namespace lockstep::core
