// Communicator over c10d::ProcessGroupGloo. Gloo in LibTorch 2.11 has no working abort(), so waits
// never block inside it: they poll completion and their own deadline.
#include <ATen/ops/from_blob.h>
#include <sched.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <map>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/number.h"
#include "core/comm/agent_store.h"
#include "core/comm/communicator.h"
#include "core/comm/device_communicator.h"
#include "core/comm/interruption.h"
#include "core/comm/node_communicator.h"
#include "core/device/runtime.h"

namespace lockstep::core {
namespace {

// Our own deadline fires first: its message says what was waited for.
constexpr double kMarginSeconds = 5;
// From so many on, a gather goes by messages between all pairs.
constexpr int64_t kDirectBytes = 64 << 10;
// Of direct messages: more than are ever under way.
constexpr int64_t kTags = 1 << 16;

Error given_up(const std::string& what) {
  return {Code::kPeerLost, text(what, ": this generation is over")};
}

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

class Done : public Pending {
 public:
  Result<void> wait() override { return {}; }
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
    const double deadline = system_clock().monotonic_s() + timeout_s_;
    for (int spins = 0; !work_->isCompleted(); ++spins) {
      if (spins < 4) {
        sched_yield();
        continue;
      }
      if (interrupted()) return given_up(what_);
      if (system_clock().monotonic_s() > deadline)
        return Error{Code::kPeerLost, text(what_, ": no answer from a peer in ", timeout_s_, " s")};
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
    const double deadline = system_clock().monotonic_s() + timeout_s_;
    const OnInterrupt end([this] {
      for (const WorkPtr& work : works_) work->abort();
    });
    try {
      for (const WorkPtr& work : works_) {
        const double left = std::max(0.001, deadline - system_clock().monotonic_s());
        const auto ms = std::chrono::milliseconds(static_cast<int64_t>(left * 1000) + 1);
        if (!work->wait(ms) || interrupted()) return given_up(what_);
      }
    } catch (const std::exception& e) {
      const std::string reason = e.what();
      if (system_clock().monotonic_s() >= deadline)
        return Error{Code::kPeerLost, text(what_, ": no answer from a peer in ", timeout_s_, " s")};
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

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, double timeout_s,
                   std::vector<int> node_of_rank)
      : group_(std::move(group)),
        timeout_s_(timeout_s),
        received_(group_->getRank(), std::move(node_of_rank)) {}
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
  WireBytes wire_bytes() const override { return received_.bytes(); }

 private:
  // Every rank sends its part to every other one: half the time of Gloo's ring for parameters
  // (docs/PERFORMANCE.md). Peers begin with different ranks, so that nobody is everybody's first.
  PendingPtr gather_directly(at::Tensor out_bytes, at::Tensor in_bytes) {
    const std::string name = text("all-gather #", ++sequence_);
    const int me = rank(), ranks = world_size();
    const int64_t n = in_bytes.numel();
    const int tag = static_cast<int>(sequence_ % kTags);
    std::vector<WorkPtr> works;
    try {
      for (int k = 1; k < ranks; ++k) {
        const int from = (me - k + ranks) % ranks;
        std::vector<at::Tensor> part{out_bytes.narrow(0, from * n, n)};
        works.push_back(group_->recv(part, from, tag));
      }
      for (int k = 1; k < ranks; ++k) {
        std::vector<at::Tensor> part{in_bytes};
        works.push_back(group_->send(part, (me + k) % ranks, tag));
      }
      out_bytes.narrow(0, me * n, n).copy_(in_bytes);
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

// One rank: every collective is a copy.
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

class C10dStore : public SharedStore {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  Result<void> set(const std::string& key, const std::string& value) override {
    try {
      store_->set(key, std::vector<uint8_t>(value.begin(), value.end()));
      return {};
    } catch (const std::exception& e) {
      return Error{Code::kPeerLost, text("the store does not take \"", key, "\": ", e.what())};
    }
  }
  Result<std::string> get(const std::string& key, double timeout_s) override {
    const double deadline = system_clock().monotonic_s() + timeout_s;
    try {
      while (!store_->check({key})) {
        if (interrupted()) return given_up(text("\"", key, "\" of the store"));
        if (system_clock().monotonic_s() > deadline)
          return Error{Code::kTimeout,
                       text("no \"", key, "\" in the store after ", timeout_s, " s")};
        system_clock().sleep_ns(2'000'000);
      }
      const std::vector<uint8_t> value = store_->get(key);
      return std::string(value.begin(), value.end());
    } catch (const std::exception& e) {
      return Error{Code::kPeerLost, text("the store does not give \"", key, "\": ", e.what())};
    }
  }
  Result<void> remove(const std::string& key) override {
    try {
      store_->deleteKey(key);
      return {};
    } catch (const std::exception& e) {
      return Error{Code::kPeerLost, text("the store does not drop \"", key, "\": ", e.what())};
    }
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

class LocalStore : public SharedStore {
 public:
  Result<void> set(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    values_[key] = value;
    return {};
  }
  Result<std::string> get(const std::string& key, double timeout_s) override {
    std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    return Error{Code::kTimeout, text("no \"", key, "\" in the store after ", timeout_s, " s")};
  }
  Result<void> remove(const std::string& key) override {
    std::lock_guard lock(mutex_);
    values_.erase(key);
    return {};
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// May throw what c10d throws.
c10::intrusive_ptr<c10d::Store> connect_store(const RendezvousOptions& o, bool may_serve) {
  if (o.store.starts_with(kAgentStore))
    return make_agent_store(o.store.substr(kAgentStore.size()), o.prefix, to_ms(o.init_timeout_s));
  c10::intrusive_ptr<c10d::Store> store;
  if (o.store.starts_with("file:")) {
    store = c10::make_intrusive<c10d::FileStore>(o.store.substr(5), -1);
  } else {
    const size_t colon = o.store.rfind(':');
    c10d::TCPStoreOptions options;
    options.port = parse_number<uint16_t>(o.store.substr(colon + 1)).value();
    options.isServer = may_serve && o.serve && o.rank == 0;
    options.waitWorkers = false;
    options.timeout = to_ms(o.init_timeout_s);
    store = c10::make_intrusive<c10d::TCPStore>(o.store.substr(4, colon - 4), options);
  }
  store->setTimeout(to_ms(o.init_timeout_s));
  return c10::make_intrusive<c10d::PrefixStore>(o.prefix, store);
}

// A place in a group; its seat k is taken by rank first + k * stride of the run.
struct Seat {
  int rank, size;
  int first = 0, stride = 1;
};

// Of the group's ranks.
std::vector<int> nodes_of(const RendezvousOptions& o, Seat seat) {
  const int of_a_node = o.local_world_size > 0 ? o.local_world_size : o.world_size;
  std::vector<int> nodes;
  for (int k = 0; k < seat.size; ++k) nodes.push_back((seat.first + k * seat.stride) / of_a_node);
  return nodes;
}

// May throw what c10d throws.
std::shared_ptr<::gloo::transport::Device> make_device(const RendezvousOptions& o) {
  using Gloo = c10d::ProcessGroupGloo;
  if (!o.bind_address.empty()) return Gloo::createDeviceForHostname(o.bind_address);
  return o.interface.empty() ? Gloo::createDefaultDevice()
                             : Gloo::createDeviceForInterface(o.interface);
}

// May throw what c10d throws.
std::unique_ptr<Communicator> connect_group(const RendezvousOptions& o, const std::string& prefix,
                                            Seat seat, int threads) {
  if (seat.size == 1) return std::make_unique<SingleCommunicator>();
  auto options = c10d::ProcessGroupGloo::Options::create(
      to_ms(std::max(o.init_timeout_s, o.timeout_s) + kMarginSeconds));
  options->devices.push_back(make_device(o));
  options->threads = threads;
  auto store = connect_store(o, /*may_serve=*/prefix == "gloo");
  auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(store)), seat.rank, seat.size,
      options);
  return std::make_unique<GlooCommunicator>(std::move(group), o.timeout_s, nodes_of(o, seat));
}

bool on_one_node(const std::vector<int>& nodes) {
  return std::count(nodes.begin(), nodes.end(), nodes.front()) == std::ssize(nodes);
}

// The same group by the shortest ways: memory inside a node, and for tensors on devices NCCL.
// Collective.
Result<std::unique_ptr<Communicator>> by_short_ways(const RendezvousOptions& o, Seat seat,
                                                    std::unique_ptr<Communicator> group) {
  if (seat.size == 1) return group;
  if (on_one_node(nodes_of(o, seat))) {
    LOCKSTEP_TRY(group, share_memory(std::move(group), o.timeout_s));
  }
  if (!o.device.is_cuda()) return group;
  if (o.device_shared) return stage_through_host(std::move(group));
  if constexpr (cuda::kBuilt)
    return connect_nccl(std::move(group), nodes_of(o, seat), o.init_timeout_s, o.timeout_s);
  return group;
}

}  // namespace

Result<Membership> join(const RendezvousOptions& o) {
  if (o.world_size == 1)
    return Membership{std::make_unique<SingleCommunicator>(),
                      std::make_unique<LocalStore>(),
                      nullptr,
                      nullptr,
                      nullptr,
                      o.device};
  const bool known = o.store.starts_with("file:") || o.store.starts_with(kAgentStore) ||
                     (o.store.starts_with("tcp:") && o.store.find(':', 4) != std::string::npos);
  if (!known)
    return Error{Code::kConfig, text("the rendezvous store is \"", o.store,
                                     "\"; it must be file:PATH, agent:PATH or tcp:HOST:PORT")};
  try {
    const Seat all{o.rank, o.world_size};
    Membership m;
    m.device = o.device;
    const auto connect = [&o](const std::string& prefix, Seat seat) {
      return by_short_ways(o, seat, connect_group(o, prefix, seat, 2));
    };
    LOCKSTEP_TRY(m.communicator, connect("gloo", all));
    // Votes go over a connection of their own: a store call holds its connection's lock while it
    // waits.
    auto votes = c10::make_intrusive<c10d::PrefixStore>("votes", connect_store(o, false));
    m.store = std::make_unique<C10dStore>(std::move(votes));
    if (const auto met = o.met ? o.met(*m.communicator, *m.store) : Result<void>(); !met.ok()) {
      std::thread([group = std::move(m)] {}).detach();  // its end may wait for a silent peer
      return met.error();
    }
    if (o.background) m.background = connect_group(o, "gloo_background", all, 1);
    const int shard = o.shard_size == 0 ? o.world_size : o.shard_size;
    LOCKSTEP_CHECK(o.world_size % shard == 0, o.world_size, " ranks in groups of ", shard);
    const int group = o.rank / shard, place = o.rank % shard;
    if (shard < o.world_size) {
      LOCKSTEP_TRY(m.shard, connect(text("gloo_shard", group), {place, shard, group * shard}));
    }
    if (shard > 1) {
      LOCKSTEP_TRY(m.copies, connect(text("gloo_copies", place),
                                     {group, o.world_size / shard, place, shard}));
    }
    return m;
  } catch (const std::exception& e) {
    const std::string reason = e.what();
    return Error{Code::kPeerLost,
                 text("rank ", o.rank, " could not join ", o.world_size, " ranks through ", o.store,
                      ": ", reason.substr(0, reason.find('\n')))};
  }
}

}  // namespace lockstep::core
