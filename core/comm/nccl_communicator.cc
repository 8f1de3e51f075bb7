// Communicator over NCCL, in its non-blocking mode: no call of ours can hang in it, so every wait
// has a deadline of our own.
#include <ATen/ops/empty.h>
#include <nccl.h>
#include <sched.h>

#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "core/comm/device_communicator.h"
#include "core/comm/interruption.h"
#include "core/device/devices.h"

namespace lockstep::core {
namespace {

// For what a kernel may still write to after a failure.
void keep_for_ever(std::vector<at::Tensor> buffers) {
  new std::vector<at::Tensor>(std::move(buffers));
}

// One NCCL communicator and its stream.
class Link {
 public:
  Link(ncclComm_t comm, double timeout_s)
      : comm_(comm), stream_(built_device().new_stream()), timeout_s_(timeout_s) {}
  ~Link() { abort(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  ncclComm_t comm() const { return comm_; }
  Stream& stream() const { return *stream_; }
  cudaStream_t cuda_stream() const { return static_cast<cudaStream_t>(stream_->handle()); }

  // Waits until NCCL took what it was given: its kernels are then in the stream.
  Result<void> settle(const std::string& what) { return settle(what, timeout_s_); }
  Result<void> settle(const std::string& what, double timeout_s) {
    if (aborted_) return earlier_failure(what);
    const double last = system_clock().monotonic_s() + timeout_s;
    ncclResult_t now = state();
    for (; now == ncclInProgress; now = state()) {
      if (interrupted()) return generation_ended(what);
      if (system_clock().monotonic_s() > last) return no_answer(what, timeout_s);
      sched_yield();
    }
    if (now != ncclSuccess) return failed(what, now);
    return {};
  }
  // Waits until `done`, which was recorded in the stream, is reached.
  Result<void> wait(const Event& done, const std::string& what) {
    const double last = system_clock().monotonic_s() + timeout_s_;
    for (;;) {
      if (aborted_) return earlier_failure(what);  // its kernels end too, with nothing done
      if (done.reached()) return {};
      const ncclResult_t now = state();
      if (now != ncclSuccess && now != ncclInProgress) return failed(what, now);
      if (interrupted()) return generation_ended(what);
      if (system_clock().monotonic_s() > last) return no_answer(what, timeout_s_);
      sched_yield();
    }
  }
  // Aborting may itself take long: a thread that nobody waits for does it. Afterwards nothing may
  // be done with the communicator, not even destroying it.
  void abort() {
    if (std::exchange(aborted_, true)) return;
    std::thread([comm = comm_] { ncclCommAbort(comm); }).detach();
  }
  Error failed(const std::string& what, ncclResult_t result) {
    const std::string why = ncclGetLastError(comm_);
    abort();
    return {Code::kPeerLost, text(what, ": ", ncclGetErrorString(result), why.empty() ? "" : "; ",
                                  why.substr(0, why.find('\n')))};
  }

 private:
  // Of what was given to NCCL: ncclInProgress while it works on it.
  ncclResult_t state() const {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    return asked == ncclSuccess ? state : asked;
  }
  Error no_answer(const std::string& what, double timeout_s) {
    abort();
    return {Code::kPeerLost, text(what, ": no answer from a peer in ", timeout_s, " s")};
  }
  Error generation_ended(const std::string& what) {
    abort();
    return generation_over(what);
  }
  Error earlier_failure(const std::string& what) const {
    return {Code::kPeerLost, text(what, ": an earlier collective failed")};
  }

  ncclComm_t comm_;
  std::unique_ptr<Stream> stream_;
  double timeout_s_;
  bool aborted_ = false;
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
    LOCKSTEP_RETURN_IF_ERROR(link_->wait(*done_, what_));
    finished_ = true;
    buffers_.clear();
    return {};
  }

 private:
  std::shared_ptr<Link> link_;
  std::string what_;
  std::vector<at::Tensor> buffers_;
  std::unique_ptr<Event> done_;
  bool finished_ = false;
};

ncclDataType_t nccl_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return ncclFloat32;
    case at::kDouble: return ncclFloat64;
    default:
      LOCKSTEP_CHECK(type == at::kBFloat16, "sums of ", c10::toString(type));
      return ncclBfloat16;
  }
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, std::shared_ptr<Link> gathers,
                   std::shared_ptr<Link> exchanges, std::vector<int> node_of_rank)
      : host_(std::move(host)),
        gathers_(std::move(gathers)),
        exchanges_(std::move(exchanges)),
        received_(host_->rank(), std::move(node_of_rank)) {}
  int rank() const override { return host_->rank(); }
  int world_size() const override { return host_->world_size(); }

  PendingPtr all_gather(at::Tensor out, at::Tensor in, Traffic traffic) override {
    if (!out.is_cuda()) return host_->all_gather(out, in, traffic);
    LOCKSTEP_CHECK(out.nbytes() == in.nbytes() * static_cast<size_t>(world_size()), out.nbytes(),
                   " ", in.nbytes());
    for (int r = 0; r < world_size(); ++r)
      received_.add(traffic, r, static_cast<int64_t>(in.nbytes()));
    return issue(gathers_, "all-gather", {out, in}, [&](const Link& link) {
      return ncclAllGather(in.data_ptr(), out.data_ptr(), in.nbytes(), ncclUint8, link.comm(),
                           link.cuda_stream());
    });
  }

  PendingPtr all_to_all(at::Tensor out, std::vector<int64_t> out_counts, at::Tensor in,
                        std::vector<int64_t> in_counts) override {
    if (!out.is_cuda())
      return host_->all_to_all(out, std::move(out_counts), in, std::move(in_counts));
    for (int r = 0; r < world_size(); ++r)
      received_.add(Traffic::kExchange, r,
                    out_counts[static_cast<size_t>(r)] * static_cast<int64_t>(out.element_size()));
    return issue(exchanges_, "exchange", {out, in}, [&](const Link& link) {
      return send_and_receive(link, out, out_counts, in, in_counts);
    });
  }

  PendingPtr all_reduce_sum(at::Tensor tensor) override {
    if (!tensor.is_cuda()) return host_->all_reduce_sum(tensor);
    const int ranks = world_size();
    received_.add(Traffic::kExchange, (rank() + ranks - 1) % ranks,
                  static_cast<int64_t>(tensor.nbytes()) * 2 * (ranks - 1) / ranks);
    return issue(exchanges_, "all-reduce", {tensor}, [&](const Link& link) {
      return ncclAllReduce(tensor.data_ptr(), tensor.data_ptr(),
                           static_cast<size_t>(tensor.numel()), nccl_type(tensor.scalar_type()),
                           ncclSum, link.comm(), link.cuda_stream());
    });
  }
  WireBytes wire_bytes() const override {
    WireBytes sum = host_->wire_bytes();
    sum.add(received_.bytes());
    return sum;
  }

 private:
  ncclResult_t send_and_receive(const Link& link, const at::Tensor& out,
                                const std::vector<int64_t>& out_counts, const at::Tensor& in,
                                const std::vector<int64_t>& in_counts) const {
    std::byte* to = static_cast<std::byte*>(out.data_ptr());
    const std::byte* from = static_cast<const std::byte*>(in.data_ptr());
    ncclResult_t worst = ncclGroupStart();
    const auto note = [&worst](ncclResult_t one) {
      if (one != ncclSuccess && one != ncclInProgress) worst = one;
    };
    for (int r = 0; r < world_size(); ++r) {
      const size_t receives =
          static_cast<size_t>(out_counts[static_cast<size_t>(r)]) * out.element_size();
      const size_t sends =
          static_cast<size_t>(in_counts[static_cast<size_t>(r)]) * in.element_size();
      if (receives > 0) note(ncclRecv(to, receives, ncclUint8, r, link.comm(), link.cuda_stream()));
      if (sends > 0) note(ncclSend(from, sends, ncclUint8, r, link.comm(), link.cuda_stream()));
      to += receives;
      from += sends;
    }
    note(ncclGroupEnd());
    return worst;
  }

  // start(link) gives a collective over `buffers` to NCCL, after what the current stream has.
  template <typename Start>
  PendingPtr issue(const std::shared_ptr<Link>& link, const char* kind,
                   std::vector<at::Tensor> buffers, Start&& start) {
    ++sequence_;
    const std::string what = text(kind, " #", sequence_);
    for (const at::Tensor& t : buffers)
      LOCKSTEP_CHECK(t.is_contiguous(), what, " needs contiguous memory");
    // Nothing more may be given to a communicator that was aborted.
    if (auto ready = link->settle(what); !ready.ok())
      return std::make_unique<Failed>(ready.error());
    link->stream().wait_for(*built_device().current_stream()->record());
    const ncclResult_t given = start(*link);
    const Result<void> taken = given == ncclSuccess || given == ncclInProgress
                                   ? link->settle(what)
                                   : Result<void>(link->failed(what, given));
    if (!taken.ok()) {
      keep_for_ever(std::move(buffers));
      return std::make_unique<Failed>(taken.error());
    }
    return std::make_unique<NcclPending>(link, what, std::move(buffers));
  }

  std::unique_ptr<Communicator> host_;
  std::shared_ptr<Link> gathers_, exchanges_;
  WireCounter received_;
  int64_t sequence_ = 0;
};

// Rank 0's unique id, at every rank. Collective.
Result<ncclUniqueId> share_unique_id(Communicator& host) {
  ncclUniqueId id = {};
  if (host.rank() == 0) {
    const ncclResult_t made = ncclGetUniqueId(&id);
    if (made != ncclSuccess)
      return Error{Code::kPeerLost, text("NCCL cannot start: ", ncclGetErrorString(made))};
  }
  const int64_t bytes = sizeof(id);
  const at::Tensor mine = at::empty({bytes}, at::kByte);
  const at::Tensor all = at::empty({host.world_size() * bytes}, at::kByte);
  std::memcpy(mine.data_ptr(), &id, sizeof(id));
  LOCKSTEP_RETURN_IF_ERROR(host.all_gather(all, mine)->wait());
  std::memcpy(&id, all.data_ptr(), sizeof(id));
  return id;
}

Result<std::shared_ptr<Link>> connect_link(Communicator& host, double init_timeout_s,
                                           double timeout_s) {
  LOCKSTEP_TRY(const ncclUniqueId id, share_unique_id(host));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t begun =
      ncclCommInitRankConfig(&comm, host.world_size(), id, host.rank(), &config);
  if (begun != ncclSuccess && begun != ncclInProgress)
    return Error{Code::kPeerLost, text("NCCL cannot connect ", host.world_size(),
                                       " ranks: ", ncclGetErrorString(begun))};
  auto link = std::make_shared<Link>(comm, timeout_s);
  LOCKSTEP_RETURN_IF_ERROR(link->settle("connecting over NCCL", init_timeout_s));
  return link;
}

}  // namespace

Result<std::unique_ptr<Communicator>> connect_devices(std::unique_ptr<Communicator> host,
                                                      std::vector<int> node_of_rank,
                                                      double init_timeout_s, double timeout_s) {
  LOCKSTEP_TRY(std::shared_ptr<Link> gathers, connect_link(*host, init_timeout_s, timeout_s));
  LOCKSTEP_TRY(std::shared_ptr<Link> exchanges, connect_link(*host, init_timeout_s, timeout_s));
  return std::unique_ptr<Communicator>(std::make_unique<NcclCommunicator>(
      std::move(host), std::move(gathers), std::move(exchanges), std::move(node_of_rank)));
}

}  // namespace lockstep::core
