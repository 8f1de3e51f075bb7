#include <ATen/ops/empty_like.h>

#include "base/check.h"
#include "core/comm/device_communicator.h"

namespace lockstep::core {
namespace {

// The inner collective's result goes back to the device when it is waited for.
class StagedPending : public Pending {
 public:
  StagedPending(PendingPtr inner, at::Tensor out, at::Tensor host_out)
      : inner_(std::move(inner)), out_(std::move(out)), host_out_(std::move(host_out)) {}
  Result<void> wait() override {
    LOCKSTEP_RETURN_IF_ERROR(inner_->wait());
    out_.copy_(host_out_);
    return {};
  }

 private:
  PendingPtr inner_;
  at::Tensor out_, host_out_;
};

class StagedCommunicator : public Communicator {
 public:
  explicit StagedCommunicator(std::shared_ptr<Communicator> host) : host_(std::move(host)) {}
  int rank() const override { return host_->rank(); }
  int world_size() const override { return host_->world_size(); }

  PendingPtr all_gather(at::Tensor out, at::Tensor in, Traffic traffic) override {
    if (out.is_cpu()) return host_->all_gather(out, in, traffic);
    const at::Tensor to = at::empty_like(out, at::kCPU);
    return staged(host_->all_gather(to, in.cpu(), traffic), out, to);
  }
  PendingPtr spread(at::Tensor tensor) override { return host_->spread(tensor); }
  bool merges() const override { return host_->merges(); }
  PendingPtr merge(const WordMerge& how, at::Tensor mine, at::Tensor answer) override {
    return host_->merge(how, mine, answer);
  }
  PendingPtr all_to_all(at::Tensor out, std::vector<int64_t> out_counts, at::Tensor in,
                        std::vector<int64_t> in_counts) override {
    if (out.is_cpu())
      return host_->all_to_all(out, std::move(out_counts), in, std::move(in_counts));
    const at::Tensor to = at::empty_like(out, at::kCPU);
    return staged(host_->all_to_all(to, std::move(out_counts), in.cpu(), std::move(in_counts)), out,
                  to);
  }
  PendingPtr all_reduce_sum(at::Tensor tensor) override {
    if (tensor.is_cpu()) return host_->all_reduce_sum(tensor);
    const at::Tensor both = tensor.cpu();
    return staged(host_->all_reduce_sum(both), tensor, both);
  }
  WireBytes wire_bytes() const override { return host_->wire_bytes(); }

 private:
  static PendingPtr staged(PendingPtr inner, const at::Tensor& out, const at::Tensor& host_out) {
    return std::make_unique<StagedPending>(std::move(inner), out, host_out);
  }
  std::shared_ptr<Communicator> host_;
};

}  // namespace

std::unique_ptr<Communicator> stage_through_host(std::shared_ptr<Communicator> host) {
  return std::make_unique<StagedCommunicator>(std::move(host));
}

}  // namespace lockstep::core
