// Over c10d::ProcessGroupGloo. Gloo in LibTorch 2.15 has no working abort(), so waits never block
// inside it: they poll completion and their own deadline.
#include "core/comm/gloo_communicator.h"

#include <ATen/ops/from_blob.h>
#include <net/if.h>
#include <sched.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <mutex>

#include "base/check.h"
#include "base/clock.h"
#include "core/comm/interruption.h"

namespace lockstep::core {
namespace {

// Our own deadline fires first: its message says what was waited for.
constexpr double kMarginSeconds = 5;
// From so many on, a gather goes by messages between all pairs.
constexpr int64_t kDirectBytes = 64 << 10;
// Of direct messages: more than are ever under way.
constexpr int64_t kTags = 1 << 16;

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// What nobody waited out: Gloo may still write to its buffers, until the group is gone.
class Unfinished {
 public:
  void keep(std::vector<WorkPtr> works) {
    const std::lock_guard lock(mutex_);
    for (WorkPtr& work : works) works_.push_back(std::move(work));
  }

 private:
  std::mutex mutex_;
  std::vector<WorkPtr> works_;
};

class GlooPending : public Pending {
 public:
  GlooPending(WorkPtr work, std::string what, double timeout_s, Unfinished& unfinished)
      : work_(std::move(work)),
        what_(std::move(what)),
        timeout_s_(timeout_s),
        unfinished_(unfinished) {}
  ~GlooPending() override {
    if (!finished_ && !work_->isCompleted()) unfinished_.keep({std::move(work_)});
  }

  Result<void> wait() override {
    LOCKSTEP_CHECK(!finished_, what_, " is waited for twice");
    const double deadline = system_clock().monotonic_s() + timeout_s_;
    for (int spins = 0; !work_->isCompleted(); ++spins) {
      if (spins < 4) {
        sched_yield();
        continue;
      }
      if (interrupted()) return generation_over(what_);
      if (system_clock().monotonic_s() > deadline)
        return Error{Code::kPeerLost,
                     text(what_, ": no answer from a peer within ", timeout_s_, " s")};
      system_clock().sleep_ns(20'000);
    }
    try {
      work_->wait();
    } catch (const std::exception& e) {
      const std::string reason = e.what();
      return Error{Code::kPeerLost, text(what_, ": ", reason.substr(0, reason.find('\n')))};
    }
    finished_ = true;
    return {};
  }

 private:
  WorkPtr work_;
  std::string what_;
  double timeout_s_;
  Unfinished& unfinished_;
  bool finished_ = false;
};

// Messages to and from every other rank. LibTorch does not say whether one is done, so this blocks,
// with a deadline; a peer that closes its connection ends it at once.
class MessagesPending : public Pending {
 public:
  MessagesPending(std::vector<WorkPtr> works, std::string what, double timeout_s,
                  Unfinished& unfinished)
      : works_(std::move(works)),
        what_(std::move(what)),
        timeout_s_(timeout_s),
        unfinished_(unfinished) {}
  ~MessagesPending() override {
    if (!finished_) unfinished_.keep(std::move(works_));
  }

  Result<void> wait() override {
    LOCKSTEP_CHECK(!finished_, what_, " is waited for twice");
    const double deadline = system_clock().monotonic_s() + timeout_s_;
    const OnInterrupt end([this] {
      for (const WorkPtr& work : works_) work->abort();
    });
    try {
      for (const WorkPtr& work : works_) {
        const double left = std::max(0.001, deadline - system_clock().monotonic_s());
        const auto ms = std::chrono::milliseconds(static_cast<int64_t>(left * 1000) + 1);
        if (!work->wait(ms) || interrupted()) return generation_over(what_);
      }
    } catch (const std::exception& e) {
      const std::string reason = e.what();
      if (system_clock().monotonic_s() >= deadline)
        return Error{Code::kPeerLost,
                     text(what_, ": no answer from a peer within ", timeout_s_, " s")};
      return Error{Code::kPeerLost, text(what_, ": ", reason.substr(0, reason.find('\n')))};
    }
    finished_ = true;
    return {};
  }

 private:
  std::vector<WorkPtr> works_;
  std::string what_;
  double timeout_s_;
  Unfinished& unfinished_;
  bool finished_ = false;
};

// Collectives move bytes, whatever the dtype: Gloo knows every width of byte. The view keeps `t`
// alive for as long as Gloo holds it, also after an error that nobody waits out.
at::Tensor as_byte_tensor(const at::Tensor& t) {
  LOCKSTEP_CHECK(t.is_contiguous(), "a collective needs contiguous memory");
  return at::from_blob(
      t.data_ptr(), {static_cast<int64_t>(t.nbytes())}, [t](void*) {},
      at::TensorOptions(at::kByte));
}

class GlooCommunicator : public GlooGroup {
 public:
  GlooCommunicator(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, double timeout_s,
                   std::vector<int> node_of_rank)
      : group_(std::move(group)),
        timeout_s_(timeout_s),
        received_(group_->getRank(), std::move(node_of_rank)) {
    LOCKSTEP_CHECK(rank() >= 0 && rank() < world_size(), "rank ", rank(), " of ", world_size());
  }
  int rank() const override { return group_->getRank(); }
  int world_size() const override { return group_->getSize(); }

  PendingPtr all_gather(at::Tensor out, at::Tensor in, Traffic traffic) override {
    LOCKSTEP_CHECK(out.nbytes() == in.nbytes() * static_cast<size_t>(world_size()), out.nbytes(),
                   " ", in.nbytes());
    at::Tensor out_bytes = as_byte_tensor(out), in_bytes = as_byte_tensor(in);
    for (int r = 0; r < world_size(); ++r)
      received_.add(traffic, r, static_cast<int64_t>(in.nbytes()));
    if (in_bytes.numel() >= kDirectBytes) return gather_directly(out_bytes, in_bytes);
    return issue("all-gather", [&] { return group_->_allgather_base(out_bytes, in_bytes); });
  }

  PendingPtr all_to_all(at::Tensor out, std::vector<int64_t> out_counts, at::Tensor in,
                        std::vector<int64_t> in_counts) override {
    check_counts(out, out_counts, world_size(), "received");
    check_counts(in, in_counts, world_size(), "sent");
    for (int64_t& n : out_counts) n *= static_cast<int64_t>(out.element_size());
    for (int64_t& n : in_counts) n *= static_cast<int64_t>(in.element_size());
    at::Tensor out_bytes = as_byte_tensor(out), in_bytes = as_byte_tensor(in);
    for (int r = 0; r < world_size(); ++r)
      received_.add(Traffic::kExchange, r, out_counts[static_cast<size_t>(r)]);
    return issue("exchange",
                 [&] { return group_->alltoall_base(out_bytes, in_bytes, out_counts, in_counts); });
  }

  PendingPtr all_reduce_sum(at::Tensor tensor) override {
    const int ranks = world_size();
    received_.add(Traffic::kExchange, (rank() + ranks - 1) % ranks,
                  static_cast<int64_t>(tensor.nbytes()) * 2 * (ranks - 1) / ranks);
    std::vector<at::Tensor> tensors{tensor};
    return issue("all-reduce", [&] { return group_->allreduce(tensors); });
  }
  PendingPtr messages(const std::string& what, const std::vector<Message>& received,
                      const std::vector<Message>& sent, Traffic traffic) override {
    for (const auto* way : {&received, &sent})
      for (const Message& one : *way)
        LOCKSTEP_CHECK(one.peer >= 0 && one.peer < world_size() && one.peer != rank(), what,
                       " with rank ", one.peer, " of ", world_size(), ", by rank ", rank());
    std::vector<Message> received_bytes, sent_bytes;
    for (const Message& one : received) {
      received_bytes.push_back({one.peer, as_byte_tensor(one.bytes)});
      received_.add(traffic, one.peer, static_cast<int64_t>(one.bytes.nbytes()));
    }
    for (const Message& one : sent) sent_bytes.push_back({one.peer, as_byte_tensor(one.bytes)});
    return post(what, received_bytes, sent_bytes);
  }
  WireBytes wire_bytes() const override { return received_.bytes(); }
  void set_nodes(std::vector<int> node_of_rank) override {
    received_.set_nodes(std::move(node_of_rank));
  }

 private:
  // Every rank sends its part to every other one: half the time of Gloo's ring for parameters
  // (docs/PERFORMANCE.md). Peers begin with different ranks, so that nobody is everybody's first.
  PendingPtr gather_directly(at::Tensor out_bytes, at::Tensor in_bytes) {
    const int me = rank(), ranks = world_size();
    const int64_t n = in_bytes.numel();
    std::vector<Message> received, sent;
    for (int k = 1; k < ranks; ++k) {
      const int from = (me - k + ranks) % ranks;
      received.push_back({from, out_bytes.narrow(0, from * n, n)});
      sent.push_back({(me + k) % ranks, in_bytes});
    }
    if (const at::Tensor own = out_bytes.narrow(0, me * n, n);
        own.data_ptr() != in_bytes.data_ptr())
      own.copy_(in_bytes);
    return post("all-gather", received, sent);
  }

  // Of tensors of bytes; what is empty is not sent.
  PendingPtr post(const std::string& what, const std::vector<Message>& received,
                  const std::vector<Message>& sent) {
    const std::string name = text(what, " #", ++sequence_);
    const int tag = static_cast<int>(sequence_ % kTags);
    std::vector<WorkPtr> works;
    try {
      for (const Message& one : received) {
        std::vector<at::Tensor> part{one.bytes};
        if (one.bytes.numel() > 0) works.push_back(group_->recv(part, one.peer, tag));
      }
      for (const Message& one : sent) {
        std::vector<at::Tensor> part{one.bytes};
        if (one.bytes.numel() > 0) works.push_back(group_->send(part, one.peer, tag));
      }
      return std::make_unique<MessagesPending>(std::move(works), name, timeout_s_, unfinished_);
    } catch (const std::exception& e) {
      unfinished_.keep(std::move(works));
      return std::make_unique<Failed>(Error{Code::kPeerLost, text(name, ": ", e.what())});
    }
  }

  template <typename Issue>
  PendingPtr issue(const char* what, Issue&& start) {
    ++sequence_;
    const std::string name = text(what, " #", sequence_);
    try {
      return std::make_unique<GlooPending>(start(), name, timeout_s_, unfinished_);
    } catch (const std::exception& e) {
      return std::make_unique<Failed>(Error{Code::kPeerLost, text(name, ": ", e.what())});
    }
  }

  Unfinished unfinished_;  // outlives the group
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  double timeout_s_;
  WireCounter received_;
  int64_t sequence_ = 0;
};

// May throw what c10d throws.
std::shared_ptr<::gloo::transport::Device> make_device(const std::string& bind_address,
                                                       const std::string& interface) {
  using Gloo = c10d::ProcessGroupGloo;
  if (!bind_address.empty()) return Gloo::createDeviceForHostname(bind_address);
  return interface.empty() ? Gloo::createDefaultDevice()
                           : Gloo::createDeviceForInterface(interface);
}

std::string interface_names() {
  std::string names;
  struct if_nameindex* const all = ::if_nameindex();
  for (const struct if_nameindex* one = all; one != nullptr && one->if_index != 0; ++one)
    names += text(names.empty() ? "" : ", ", one->if_name);
  if (all != nullptr) ::if_freenameindex(all);
  return names;
}

}  // namespace

Result<void> check_address(const std::string& bind_address, const std::string& interface) {
  try {
    make_device(bind_address, interface);
    return {};
  } catch (const std::exception& e) {
    const std::string reason = e.what();
    const std::string what =
        !bind_address.empty() ? text("at the address ", bind_address, " (--local-addr)")
        : !interface.empty()
            ? text("on the network interface \"", interface, "\" (GLOO_SOCKET_IFNAME)")
            : text(
                  "at the address that this machine's name resolves to (set GLOO_SOCKET_IFNAME to "
                  "use another interface)");
    return Error{Code::kConfig, text("ranks cannot connect ", what, "; this machine has ",
                                     interface_names(), ": ", reason.substr(0, reason.find('\n')))};
  }
}

std::unique_ptr<GlooGroup> connect_gloo(const GlooOptions& o,
                                        c10::intrusive_ptr<c10d::Store> store) {
  const double longest_s = std::max(o.init_timeout_s, o.timeout_s) + kMarginSeconds;
  auto options = c10d::ProcessGroupGloo::Options::create(
      std::chrono::milliseconds(static_cast<int64_t>(longest_s * 1000)));
  options->devices.push_back(make_device(o.bind_address, o.interface));
  options->threads = o.threads;
  auto group =
      c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(store), o.rank, o.size, options);
  return std::make_unique<GlooCommunicator>(std::move(group), o.timeout_s, o.node_of_rank);
}

}  // namespace lockstep::core
