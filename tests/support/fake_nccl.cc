#include "tests/support/fake_nccl.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::core {
namespace {

constexpr int kLateBytes = 0xEE;  // what kernels write that were aborted

}  // namespace

// What the calls of a thread between group_start and group_end collect.
struct FakeNccl::Group {
  bool open = false;
  Comm* comm = nullptr;
  Stream* stream = nullptr;
  KernelPtr kernel;
};

FakeNccl::Group& FakeNccl::group_of_thread() {
  static thread_local Group group;
  return group;
}

void FakeNccl::fail(int rank, size_t link, NcclResult error) {
  const std::lock_guard lock(streams_.mutex());
  for (const auto& comm : comms_)
    if (comm->rank == rank && link-- == 0) comm->error = error;
  streams_.look();
}

void FakeNccl::fail_call(const std::string& name, NcclResult error) {
  const std::lock_guard lock(streams_.mutex());
  failing_[name] = error;
}

void FakeNccl::hold_aborts(bool held) {
  const std::lock_guard lock(streams_.mutex());
  aborts_held_ = held;
  released_.notify_all();
}

std::vector<std::string> FakeNccl::violations() {
  const std::lock_guard lock(streams_.mutex());
  return violations_;
}

FakeNccl::Counts FakeNccl::counts() {
  const std::lock_guard lock(streams_.mutex());
  return counts_;
}

void FakeNccl::violated(const std::string& rule) { violations_.push_back(rule); }

NcclResult FakeNccl::failing(const char* name) {
  const auto found = failing_.find(name);
  if (found == failing_.end()) return NcclResult::kSuccess;
  const NcclResult error = found->second;
  failing_.erase(found);
  return error;
}

bool FakeNccl::settled(const Comm& comm) const {
  return comm.looks_left == 0 && comm.begun.empty() &&
         comm.world->come == std::ssize(comm.world->ranks);
}

// Whether a call may be made that gives `comm` something.
bool FakeNccl::may_give(const Comm& comm, const char* name) {
  const size_t before = violations_.size();
  if (comm.aborted || comm.destroyed) violated(text(name, " after the end"));
  if (is_error(comm.error)) violated(text(name, " after an error"));
  if (comm.finalizing) violated(text(name, " after finalize"));
  if (!settled(comm)) violated(text(name, " while another call is in progress"));
  if (comm.thread != std::this_thread::get_id()) violated(text(name, " on another thread"));
  return violations_.size() == before;
}

NcclResult FakeNccl::get_unique_id(NcclId& id) {
  const std::lock_guard lock(streams_.mutex());
  std::memcpy(id.bytes.data(), &next_id_, sizeof next_id_);
  ++next_id_;
  return failing("get_unique_id");
}

NcclResult FakeNccl::init_rank(NcclComm& made, int ranks, const NcclId& id, int rank,
                               int max_ctas) {
  const std::lock_guard lock(streams_.mutex());
  int64_t number = 0;
  std::memcpy(&number, id.bytes.data(), sizeof number);
  LOCKSTEP_CHECK(number > 0 && number < next_id_, "no such unique id: ", number);
  World& world = worlds_[number];
  world.ranks.resize(static_cast<size_t>(ranks));
  Comm& comm = *comms_.emplace_back(std::make_unique<Comm>());
  comm.world = &world;
  comm.rank = rank;
  comm.thread = std::this_thread::get_id();
  comm.looks_left = looks_;
  made = reinterpret_cast<NcclComm>(&comm);
  ++counts_.made;
  counts_.ctas.push_back(max_ctas);
  if (const NcclResult error = failing("init_rank"); is_error(error)) return comm.error = error;
  world.ranks[static_cast<size_t>(rank)] = &comm;
  ++world.come;
  return NcclResult::kInProgress;
}

NcclResult FakeNccl::state(NcclComm which) {
  const std::lock_guard lock(streams_.mutex());
  Comm& comm = of(which);
  if (comm.aborted || comm.destroyed) violated("state after the end");
  streams_.look();
  if (is_error(comm.error)) return comm.error;
  if (comm.looks_left > 0 && --comm.looks_left > 0) return NcclResult::kInProgress;
  launch(comm);
  const auto closing = [](const Comm* c) {
    return c != nullptr && c->finalizing && c->kernels.empty() && c->begun.empty();
  };
  const auto& ranks = comm.world->ranks;
  const bool closed = !comm.finalizing || std::all_of(ranks.begin(), ranks.end(), closing);
  return settled(comm) && closed ? NcclResult::kSuccess : NcclResult::kInProgress;
}

std::string FakeNccl::last_error(NcclComm which) {
  const std::lock_guard lock(streams_.mutex());
  if (of(which).aborted || of(which).destroyed) violated("last_error after the end");
  return "said by the fake\nand more";
}

std::string FakeNccl::error_text(NcclResult result) {
  return text("error ", static_cast<int>(result));
}

// The kernels that it ends write once more, when it is done.
void FakeNccl::abort(NcclComm which) {
  std::unique_lock lock(streams_.mutex());
  Comm& comm = of(which);
  ++counts_.aborts_begun;
  if (comm.aborted || comm.destroyed) violated("abort after the end");
  if (comm.thread == std::this_thread::get_id()) violated("abort on the thread that waits");
  comm.aborted = true;
  for (const auto& [kernel, stream] : comm.begun) comm.broken.push_back(kernel);
  comm.begun.clear();
  streams_.look();
  released_.wait(lock, [this] { return !aborts_held_; });
  for (const KernelPtr& kernel : comm.broken) {
    if (kernel->out != nullptr) std::memset(kernel->out, kLateBytes, kernel->bytes);
    for (const Message& m : kernel->receives) std::memset(m.memory, kLateBytes, m.bytes);
  }
  ++counts_.aborts_done;
}

NcclResult FakeNccl::finalize(NcclComm which) {
  const std::lock_guard lock(streams_.mutex());
  Comm& comm = of(which);
  may_give(comm, "finalize");
  comm.finalizing = true;
  comm.looks_left = looks_;
  ++counts_.finalized;
  return NcclResult::kInProgress;
}

void FakeNccl::destroy(NcclComm which) {
  const std::lock_guard lock(streams_.mutex());
  Comm& comm = of(which);
  if (comm.aborted || comm.destroyed) violated("destroy after the end");
  if (!comm.finalizing || !settled(comm)) violated("destroy before finalize has settled");
  comm.destroyed = true;
  ++counts_.destroyed;
}

NcclResult FakeNccl::group_start() {
  const std::lock_guard lock(streams_.mutex());
  if (const NcclResult error = failing("group_start"); is_error(error)) return error;
  if (group_of_thread().open) violated("a group in a group");
  group_of_thread() = {true, nullptr, nullptr, nullptr};
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::group_end() {
  const std::lock_guard lock(streams_.mutex());
  const Group group = std::exchange(group_of_thread(), Group());
  if (!group.open) violated("group_end without group_start");
  if (const NcclResult error = failing("group_end"); is_error(error)) return error;
  if (group.comm == nullptr) return NcclResult::kSuccess;  // nothing was collected
  return begin(*group.comm, group.kernel, *group.stream);
}

NcclResult FakeNccl::all_gather(const void* in, void* out, size_t bytes, NcclComm which,
                                Stream& stream) {
  const std::lock_guard lock(streams_.mutex());
  Comm& comm = of(which);
  if (!may_give(comm, "all_gather")) return NcclResult::kInvalidUsage;
  if (const NcclResult error = failing("all_gather"); is_error(error)) return comm.error = error;
  auto kernel = std::make_shared<Kernel>();
  kernel->kind = Kind::kGather;
  kernel->in = in;
  kernel->out = out;
  kernel->bytes = bytes * comm.world->ranks.size();
  return begin(comm, std::move(kernel), stream);
}

NcclResult FakeNccl::all_reduce_sum(const void* in, void* out, size_t count, NcclType type,
                                    NcclComm which, Stream& stream) {
  const std::lock_guard lock(streams_.mutex());
  Comm& comm = of(which);
  if (!may_give(comm, "all_reduce_sum")) return NcclResult::kInvalidUsage;
  LOCKSTEP_CHECK(type == NcclType::kFloat32, "the fake adds no other type");
  auto kernel = std::make_shared<Kernel>();
  kernel->kind = Kind::kSum;
  kernel->in = in;
  kernel->out = out;
  kernel->bytes = count * sizeof(float);
  return begin(comm, std::move(kernel), stream);
}

NcclResult FakeNccl::send(const void* from, size_t bytes, int peer, NcclComm which,
                          Stream& stream) {
  const std::lock_guard lock(streams_.mutex());
  Kernel* const kernel = collected(of(which), "send", stream);
  if (kernel == nullptr) return NcclResult::kInvalidUsage;
  auto* memory = static_cast<std::byte*>(const_cast<void*>(from));
  kernel->sends.push_back({memory, bytes, of(which).rank, peer});
  return failing("send");
}

NcclResult FakeNccl::recv(void* to, size_t bytes, int peer, NcclComm which, Stream& stream) {
  const std::lock_guard lock(streams_.mutex());
  Kernel* const kernel = collected(of(which), "recv", stream);
  if (kernel == nullptr) return NcclResult::kInvalidUsage;
  kernel->receives.push_back({static_cast<std::byte*>(to), bytes, peer, of(which).rank});
  return failing("recv");
}

// The kernel that the calls of this thread's group make up; null: a rule was broken.
FakeNccl::Kernel* FakeNccl::collected(Comm& comm, const char* name, Stream& stream) {
  Group& group = group_of_thread();
  if (!may_give(comm, name)) return nullptr;
  if (!group.open) violated(text(name, " outside a group: it waits for its peer alone"));
  if (group.kernel == nullptr) {
    group.kernel = std::make_shared<Kernel>();
    group.kernel->kind = Kind::kMessages;
    group.comm = &comm;
    group.stream = &stream;
  }
  if (group.comm != &comm || group.stream != &stream) violated("a group of two communicators");
  return group.kernel.get();
}

NcclResult FakeNccl::begin(Comm& comm, KernelPtr kernel, Stream& stream) {
  comm.begun.emplace_back(std::move(kernel), &stream);
  comm.looks_left = looks_;
  if (looks_ > 0) return NcclResult::kInProgress;
  launch(comm);
  return settled(comm) ? NcclResult::kSuccess : NcclResult::kInProgress;
}

// Into the stream; the CPU's has done it when it has been given.
void FakeNccl::launch(Comm& comm) {
  while (!comm.begun.empty()) {
    const auto [kernel, stream] = comm.begun.front();
    if (!kernel->launched) comm.kernels.push_back(kernel);
    kernel->launched = true;
    if (auto* const fake = dynamic_cast<FakeStream*>(stream); fake != nullptr)
      fake->give([this, &comm, kernel] { return run(comm, kernel); });
    else if (!run(comm, kernel))
      return;
    comm.begun.erase(comm.begun.begin());
  }
}

// Whether the kernel is done. One whose communicator has failed ends with nothing done.
bool FakeNccl::run(Comm& comm, const KernelPtr& kernel) {
  kernel->running = true;
  if (!kernel->done && (comm.aborted || is_error(comm.error))) {
    comm.broken.push_back(kernel);
    kernel->done = true;
  }
  if (!kernel->done) meet(*comm.world);
  if (kernel->done) std::erase(comm.kernels, kernel);
  return kernel->done;
}

// What can happen between the kernels that run on the ranks of a world.
void FakeNccl::meet(World& world) {
  std::vector<KernelPtr> running;
  for (const Comm* comm : world.ranks)
    if (comm != nullptr && !comm->kernels.empty() && comm->kernels.front()->running &&
        !comm->kernels.front()->done)
      running.push_back(comm->kernels.front());
  for (const KernelPtr& to : running)
    for (const KernelPtr& from : running) deliver(*from, *to);
  for (const KernelPtr& kernel : running)
    if (kernel->kind == Kind::kMessages && kernel->sends.empty() && kernel->receives.empty())
      kernel->done = true;
  const auto is_collective = [](const KernelPtr& k) { return k->kind != Kind::kMessages; };
  if (running.size() == world.ranks.size() &&
      std::all_of(running.begin(), running.end(), is_collective))
    collect(running);
}

// The messages that one has and the other waits for.
void FakeNccl::deliver(Kernel& from, Kernel& to) {
  for (auto sent = from.sends.begin(); sent != from.sends.end();) {
    const auto wanted = std::find_if(to.receives.begin(), to.receives.end(), [&](const Message& m) {
      return m.from == sent->from && m.to == sent->to;
    });
    if (wanted == to.receives.end()) {
      ++sent;
      continue;
    }
    if (wanted->bytes != sent->bytes)
      violated(text("rank ", sent->from, " sends ", sent->bytes, " bytes to rank ", sent->to,
                    ", which waits for ", wanted->bytes));
    std::memcpy(wanted->memory, sent->memory, std::min(wanted->bytes, sent->bytes));
    to.receives.erase(wanted);
    sent = from.sends.erase(sent);
  }
}

// One of all ranks.
void FakeNccl::collect(const std::vector<KernelPtr>& all) {
  for (const KernelPtr& kernel : all)
    if (kernel->kind != all[0]->kind || kernel->bytes != all[0]->bytes)
      violated("ranks are in collectives that differ");
  const size_t bytes = all[0]->bytes / (all[0]->kind == Kind::kGather ? all.size() : 1);
  std::vector<std::byte> result(all[0]->bytes);
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r]->kind == Kind::kGather) std::memcpy(result.data() + r * bytes, all[r]->in, bytes);
    auto* sums = reinterpret_cast<float*>(result.data());
    for (size_t i = 0; all[r]->kind == Kind::kSum && i < bytes / sizeof(float); ++i)
      sums[i] += static_cast<const float*>(all[r]->in)[i];
  }
  for (const KernelPtr& kernel : all) {
    std::memcpy(kernel->out, result.data(), std::min(result.size(), kernel->bytes));
    kernel->done = true;
  }
}

}  // namespace lockstep::core
