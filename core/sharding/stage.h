// A model is a sequence of stages: x -> stage 0 -> stage 1 -> … -> loss. Each stage works on one
// or more units (layout/round_plan.h). core/model implements stages; Schedule runs them.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "core/kernels/documents.h"
#include "core/sharding/key_value_cache.h"
#include "core/sharding/unit.h"
#include "layout/round_plan.h"

namespace lockstep::core {

// One slot on the device: micro-batch of fixed shape.
struct SlotInput {
  // `document_starts`: Documents::create's.
  SlotInput(at::Tensor tokens, at::Tensor labels, double gradient, int64_t of_step = 0,
            int64_t of_slot = 0, std::span<const int64_t> document_starts = {})
      : tokens_BT(std::move(tokens)),
        labels_BT(std::move(labels)),
        dy(gradient),
        step(of_step),
        slot(of_slot),
        documents(Documents::create(tokens_BT.size(0), tokens_BT.size(1), document_starts,
                                    tokens_BT.device())) {}
  // New tokens [1, R] of the sequences that `of` has, at the positions that begin() gave: for the
  // forward of the stages before the loss.
  SlotInput(at::Tensor tokens, at::Tensor positions_R, KeyValueCache& of)
      : tokens_BT(std::move(tokens)), dy(0), step(0), slot(0), cache(&of) {
    documents.positions_R = std::move(positions_R);
  }

  at::Tensor tokens_BT, labels_BT;  // int64; label -100 is not counted
  double dy;                        // gradient of a valid token's loss: 1 / (B*T)
  int64_t step, slot;               // which one: randomness is a function of them
  Documents documents;              // with a cache, the rows' positions alone
  KeyValueCache* cache = nullptr;   // of generation: what attention looks back to
};

// Thread: the training thread. `units` are this stage's, gathered beforehand, unless backward needs
// no weights.
class Stage {
 public:
  virtual ~Stage() = default;
  // x [B*T, D] in the compute dtype (undefined for the first stage). With `keep`, saves what
  // backward needs.
  virtual at::Tensor forward(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                             bool keep) = 0;
  // Writes the gradients of its parameters into the units; returns dx (undefined from the first
  // stage).
  virtual at::Tensor backward(UnitParts units, const at::Tensor& dy, const SlotInput& slot) = 0;
};

// The last stage: loss, and with `want_gradients` its backward at once, chunk by chunk, so that
// the logits of all tokens never exist together.
class LossStage {
 public:
  struct Output {
    double loss = 0;  // sum of the valid tokens' losses
    at::Tensor dx;    // [B*T, D]; undefined without gradients
  };
  virtual ~LossStage() = default;
  virtual Output run(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                     bool want_gradients) = 0;
};

struct StageSequence {
  std::vector<std::unique_ptr<Stage>> stages;
  std::unique_ptr<LossStage> loss;
  std::vector<layout::StageUnits> units;  // by stage, the loss last
};

}  // namespace lockstep::core
