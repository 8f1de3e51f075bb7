// A way to one other rank and a way from one, for a thread beside the training: snapshots go over
// them. Each is a group of two, so that nobody is connected with all.
// Thread: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "core/comm/gloo_communicator.h"

namespace lockstep::core {

class Buddies {
 public:
  // Makes place `place` (0 or 1) of the group of two that has this name. May throw what c10d
  // throws. Called on two threads at once.
  using Connect = std::function<std::unique_ptr<GlooGroup>(const std::string& name, int place)>;
  explicit Buddies(int rank, Connect connect) : rank_(rank), connect_(std::move(connect)) {}

  // With the rank whose bytes come here, and the one that names this one so. Every rank is the
  // `from` of one. Collective. Errors: kPeerLost.
  Result<void> connect(int from);
  // Sends `out` and fills `in`, bytes both, as many as is known at the other end; those may be
  // none. Errors: those of Pending::wait. Requires: connected.
  Result<void> exchange(const at::Tensor& out, const at::Tensor& in);

 private:
  int rank_;
  Connect connect_;
  std::unique_ptr<GlooGroup> to_, from_;
};

}  // namespace lockstep::core
