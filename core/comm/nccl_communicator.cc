// Communicator over NCCL, in its non-blocking mode: no call of ours can hang in it, so every wait
// has a deadline of our own.
#include <ATen/ops/empty.h>
#include <sched.h>

#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "core/comm/device_communicator.h"
#include "core/comm/gather_strings.h"
#include "core/comm/interruption.h"

namespace lockstep::core {
namespace {

// For peers to come to an orderly end as well.
constexpr double kClose_s = 10;

// For what a kernel may still write to after a failure.
void keep_for_ever(std::vector<at::Tensor> buffers) {
  new std::vector<at::Tensor>(std::move(buffers));
}

// One NCCL communicator and its stream.
class Link {
 public:
  Link(Nccl& nccl, NcclComm comm, const Device& device, double timeout_s)
      : nccl_(nccl), comm_(comm), stream_(device.new_stream()), timeout_s_(timeout_s) {}
  ~Link() { abort(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  Nccl& nccl() const { return nccl_; }
  NcclComm comm() const { return comm_; }
  Stream& stream() const { return *stream_; }

  // Waits until NCCL took what it was given: its kernels are then in the stream.
  Result<void> settle(const std::string& what) { return settle(what, timeout_s_); }
  Result<void> settle(const std::string& what, double timeout_s) {
    if (comm_ == nullptr) return earlier_failure(what);
    const double last = system_clock().monotonic_s() + timeout_s;
    NcclResult now = nccl_.state(comm_);
    for (; now == NcclResult::kInProgress; now = nccl_.state(comm_)) {
      if (interrupted()) return generation_ended(what);
      if (system_clock().monotonic_s() > last) return no_answer(what, timeout_s);
      sched_yield();
    }
    if (is_error(now)) return failed(what, now);
    return {};
  }
  // Waits until `done`, which was recorded in the stream, is reached.
  Result<void> wait(const Event& done, const std::string& what) {
    const double last = system_clock().monotonic_s() + timeout_s_;
    for (;;) {
      if (comm_ == nullptr) return earlier_failure(what);  // its kernels end too, with nothing done
      // The state after the event: a kernel that an error ended has not done its work.
      const bool reached = done.reached();
      const NcclResult now = nccl_.state(comm_);
      if (is_error(now)) return failed(what, now);
      if (reached) return {};
      if (interrupted()) return generation_ended(what);
      if (system_clock().monotonic_s() > last) return no_answer(what, timeout_s_);
      sched_yield();
    }
  }
  // Aborting may itself take long: a thread that nobody waits for does it.
  void abort() {
    const NcclComm comm = std::exchange(comm_, nullptr);
    if (comm == nullptr) return;
    std::thread([&nccl = nccl_, comm] { nccl.abort(comm); }).detach();
  }
  // The end that all ranks come to: what is still under way to them arrives. Where one does not
  // come, the others abort.
  void close() {
    if (interrupted() || !settle("closing").ok()) return abort();
    if (is_error(nccl_.finalize(comm_)) || !settle("closing", kClose_s).ok()) return abort();
    nccl_.destroy(std::exchange(comm_, nullptr));
  }
  Error failed(const std::string& what, NcclResult result) {
    const std::string why = nccl_.last_error(comm_);
    abort();
    return {Code::kPeerLost, text(what, ": ", nccl_.error_text(result), why.empty() ? "" : "; ",
                                  why.substr(0, why.find('\n')))};
  }

 private:
  Error no_answer(const std::string& what, double timeout_s) {
    abort();
    return {Code::kPeerLost, text(what, ": no answer from a peer within ", timeout_s, " s")};
  }
  Error generation_ended(const std::string& what) {
    abort();
    return generation_over(what);
  }
  Error earlier_failure(const std::string& what) const {
    return {Code::kPeerLost, text(what, ": an earlier collective failed")};
  }

  Nccl& nccl_;
  NcclComm comm_;  // null: nothing may be called any more
  std::unique_ptr<Stream> stream_;
  double timeout_s_;
};

class NcclPending : public Pending {
 public:
  // `what` was given to NCCL and taken; `buffers` are what it works on.
  NcclPending(std::shared_ptr<Link> link, std::string what, std::vector<at::Tensor> buffers)
      : link_(std::move(link)),
        what_(std::move(what)),
        buffers_(std::move(buffers)),
        done_(link_->stream().record()) {}
  ~NcclPending() override {
    if (!finished_) keep_for_ever(std::move(buffers_));
  }

  Result<void> wait() override {
    LOCKSTEP_CHECK(!finished_, what_, " is waited for twice");
    LOCKSTEP_RETURN_IF_ERROR(link_->wait(*done_, what_));
    finished_ = true;
    buffers_.clear();
    return {};
  }
  const Event& done() const { return *done_; }

 private:
  std::shared_ptr<Link> link_;
  std::string what_;
  std::vector<at::Tensor> buffers_;
  std::unique_ptr<Event> done_;
  bool finished_ = false;
};

NcclType nccl_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return NcclType::kFloat32;
    case at::kDouble: return NcclType::kFloat64;
    default:
      LOCKSTEP_CHECK(type == at::kBFloat16, "sums of ", c10::toString(type));
      return NcclType::kBfloat16;
  }
}

class NcclCommunicator : public Communicator {
 public:
  // A link may be null: then nothing is given to it.
  NcclCommunicator(std::unique_ptr<Communicator> host, const Device& device,
                   std::shared_ptr<Link> gathers, std::shared_ptr<Link> exchanges,
                   std::vector<int> node_of_rank)
      : host_(std::move(host)),
        device_(device),
        type_(device.of_rank(0).type()),
        gathers_(std::move(gathers)),
        exchanges_(std::move(exchanges)),
        received_(host_->rank(), std::move(node_of_rank)) {}
  ~NcclCommunicator() override {
    for (const auto& link : {gathers_, exchanges_})
      if (link) link->close();
  }
  int rank() const override { return host_->rank(); }
  int world_size() const override { return host_->world_size(); }

  PendingPtr all_gather(at::Tensor out, at::Tensor in, Traffic traffic) override {
    if (!is_mine(out)) return host_->all_gather(out, in, traffic);
    return gather(out, in, traffic, nullptr);
  }

  PendingPtr all_gather_after(const Pending& first, at::Tensor out, at::Tensor in,
                              Traffic traffic) override {
    const auto* const before = dynamic_cast<const NcclPending*>(&first);
    if (before == nullptr || !is_mine(out)) return nullptr;
    return gather(out, in, traffic, &before->done());
  }

  PendingPtr spread(at::Tensor tensor) override { return host_->spread(tensor); }
  bool merges() const override { return host_->merges(); }
  PendingPtr merge(const WordMerge& how, at::Tensor mine, at::Tensor answer) override {
    return host_->merge(how, mine, answer);
  }
  PendingPtr all_to_all(at::Tensor out, std::vector<int64_t> out_counts, at::Tensor in,
                        std::vector<int64_t> in_counts) override {
    if (!is_mine(out))
      return host_->all_to_all(out, std::move(out_counts), in, std::move(in_counts));
    check_counts(out, out_counts, world_size(), "received");
    check_counts(in, in_counts, world_size(), "sent");
    for (int r = 0; r < world_size(); ++r)
      received_.add(Traffic::kExchange, r,
                    out_counts[static_cast<size_t>(r)] * static_cast<int64_t>(out.element_size()));
    return issue(exchanges_, "exchange", {out, in}, [&](const Link& link) {
      return send_and_receive(link, out, out_counts, in, in_counts);
    });
  }

  PendingPtr all_reduce_sum(at::Tensor tensor) override {
    if (!is_mine(tensor)) return host_->all_reduce_sum(tensor);
    const int ranks = world_size();
    received_.add(Traffic::kExchange, (rank() + ranks - 1) % ranks,
                  static_cast<int64_t>(tensor.nbytes()) * 2 * (ranks - 1) / ranks);
    return issue(exchanges_, "all-reduce", {tensor}, [&](const Link& link) {
      return link.nccl().all_reduce_sum(
          tensor.data_ptr(), tensor.data_ptr(), static_cast<size_t>(tensor.numel()),
          nccl_type(tensor.scalar_type()), link.comm(), link.stream());
    });
  }
  WireBytes wire_bytes() const override {
    WireBytes sum = host_->wire_bytes();
    sum.add(received_.bytes());
    return sum;
  }

 private:
  bool is_mine(const at::Tensor& tensor) const { return tensor.device().type() == type_; }

  PendingPtr gather(const at::Tensor& out, const at::Tensor& in, Traffic traffic,
                    const Event* before) {
    LOCKSTEP_CHECK(out.nbytes() == in.nbytes() * static_cast<size_t>(world_size()), out.nbytes(),
                   " ", in.nbytes());
    for (int r = 0; r < world_size(); ++r)
      received_.add(traffic, r, static_cast<int64_t>(in.nbytes()));
    return issue(
        gathers_, "all-gather", {out, in},
        [&](const Link& link) {
          return link.nccl().all_gather(in.data_ptr(), out.data_ptr(), in.nbytes(), link.comm(),
                                        link.stream());
        },
        before);
  }

  // Ranks that have nothing for each other do not call each other.
  NcclResult send_and_receive(const Link& link, const at::Tensor& out,
                              const std::vector<int64_t>& out_counts, const at::Tensor& in,
                              const std::vector<int64_t>& in_counts) const {
    Nccl& nccl = link.nccl();
    std::byte* to = static_cast<std::byte*>(out.data_ptr());
    const std::byte* from = static_cast<const std::byte*>(in.data_ptr());
    NcclResult worst = nccl.group_start();
    if (is_error(worst)) return worst;
    const auto note = [&worst](NcclResult one) {
      if (is_error(one)) worst = one;
    };
    for (int r = 0; r < world_size(); ++r) {
      const size_t receives =
          static_cast<size_t>(out_counts[static_cast<size_t>(r)]) * out.element_size();
      const size_t sends =
          static_cast<size_t>(in_counts[static_cast<size_t>(r)]) * in.element_size();
      if (receives > 0) note(nccl.recv(to, receives, r, link.comm(), link.stream()));
      if (sends > 0) note(nccl.send(from, sends, r, link.comm(), link.stream()));
      to += receives;
      from += sends;
    }
    note(nccl.group_end());
    return worst;
  }

  // start(link) gives a collective over `buffers` to NCCL, after what the current stream has, and
  // after `before`.
  template <typename Start>
  PendingPtr issue(const std::shared_ptr<Link>& link, const char* kind,
                   std::vector<at::Tensor> buffers, Start&& start, const Event* before = nullptr) {
    ++sequence_;
    const std::string what = text(kind, " #", sequence_);
    LOCKSTEP_CHECK(link != nullptr, what, " in a group that was created without them");
    for (const at::Tensor& t : buffers)
      LOCKSTEP_CHECK(t.is_contiguous(), what, " needs contiguous memory");
    // Nothing more may be given to a communicator that was aborted.
    if (auto ready = link->settle(what); !ready.ok())
      return std::make_unique<Failed>(ready.error());
    link->stream().wait_for(*device_.current_stream()->record());
    if (before != nullptr) link->stream().wait_for(*before);
    const NcclResult given = start(*link);
    const Result<void> taken =
        is_error(given) ? Result<void>(link->failed(what, given)) : link->settle(what);
    if (!taken.ok()) {
      keep_for_ever(std::move(buffers));
      return std::make_unique<Failed>(taken.error());
    }
    return std::make_unique<NcclPending>(link, what, std::move(buffers));
  }

  std::unique_ptr<Communicator> host_;
  const Device& device_;
  at::DeviceType type_;
  std::shared_ptr<Link> gathers_, exchanges_;
  WireCounter received_;
  int64_t sequence_ = 0;
};

// Rank 0's unique id, at every rank; or that it has none. Collective.
Result<NcclId> share_unique_id(Nccl& nccl, Communicator& host) {
  NcclId id = {};
  NcclResult made = NcclResult::kSuccess;
  if (host.rank() == 0) made = nccl.get_unique_id(id);
  std::string mine(1 + id.bytes.size(), static_cast<char>(made));
  std::memcpy(mine.data() + 1, id.bytes.data(), id.bytes.size());
  LOCKSTEP_TRY(const std::string first, string_of_first(host, mine, mine.size()));
  made = static_cast<NcclResult>(first[0]);
  if (is_error(made))
    return Error{Code::kPeerLost, text("NCCL cannot start on rank 0: ", nccl.error_text(made))};
  std::memcpy(id.bytes.data(), first.data() + 1, id.bytes.size());
  return id;
}

// Collective.
Result<std::shared_ptr<Link>> connect_link(Nccl& nccl, const Device& device, Communicator& host,
                                           const DeviceGroup& group) {
  LOCKSTEP_TRY(const NcclId id, share_unique_id(nccl, host));
  NcclComm comm = nullptr;
  const NcclResult begun =
      nccl.init_rank(comm, host.world_size(), id, host.rank(), group.ctas_of_link);
  auto link = std::make_shared<Link>(nccl, comm, device, group.timeout_s);
  if (is_error(begun))
    return Error{Code::kPeerLost, text("NCCL cannot connect ", host.world_size(),
                                       " ranks: ", nccl.error_text(begun))};
  LOCKSTEP_RETURN_IF_ERROR(link->settle("connecting over NCCL", group.init_timeout_s));
  return link;
}

}  // namespace

Result<std::unique_ptr<Communicator>> connect_devices(Nccl& nccl, const Device& device,
                                                      std::unique_ptr<Communicator> host,
                                                      DeviceGroup group) {
  std::shared_ptr<Link> gathers, exchanges;
  if (group.links.gathers) {
    LOCKSTEP_TRY(gathers, connect_link(nccl, device, *host, group));
  }
  if (group.links.exchanges) {
    LOCKSTEP_TRY(exchanges, connect_link(nccl, device, *host, group));
  }
  if (!gathers && !exchanges) return host;
  return std::unique_ptr<Communicator>(
      std::make_unique<NcclCommunicator>(std::move(host), device, std::move(gathers),
                                         std::move(exchanges), std::move(group.node_of_rank)));
}

}  // namespace lockstep::core
