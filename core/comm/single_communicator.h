// The communicator of a rank that is alone.
#pragma once

#include "core/comm/communicator.h"

namespace lockstep::core {

// Every collective is a copy.
class SingleCommunicator : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  PendingPtr all_gather(at::Tensor out, at::Tensor in, Traffic) override { return copy(out, in); }
  PendingPtr all_to_all(at::Tensor out, std::vector<int64_t>, at::Tensor in,
                        std::vector<int64_t>) override {
    return copy(out, in);
  }
  PendingPtr all_reduce_sum(at::Tensor) override { return std::make_unique<Done>(); }
  WireBytes wire_bytes() const override { return {}; }

 private:
  static PendingPtr copy(at::Tensor& out, const at::Tensor& in) {
    if (out.data_ptr() != in.data_ptr()) out.copy_(in);
    return std::make_unique<Done>();
  }
};

}  // namespace lockstep::core
