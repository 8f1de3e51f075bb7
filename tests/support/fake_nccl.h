// NCCL in memory, for ranks that are threads: what nccl_communicator.cc calls (core/comm/
// nccl_calls.h), with its rules held against the caller. A collective reads its input when the
// kernels of all its ranks run, in the order of their streams (fake_streams.h); with the CPU's
// streams it is in progress until then. Faults are the test's. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/nccl_calls.h"
#include "tests/support/fake_streams.h"

namespace lockstep::core {

class FakeNccl : public Nccl {
 public:
  // Each call that begins something is in progress for so many looks at the state.
  explicit FakeNccl(FakeStreams& streams, int looks = 3) : streams_(streams), looks_(looks) {}

  // --- Faults. `link`: of that rank's communicators the one that was made so many-th.
  // From now on the state shows it. The kernels under way end as well, with nothing done.
  void fail(int rank, size_t link, NcclResult error);
  // The next call of this name, by anybody, fails.
  void fail_call(const std::string& name, NcclResult error);
  // An abort begins, and does not return before it may.
  void hold_aborts(bool held);

  // --- What happened.
  // Rules of nccl_calls.h that a caller broke.
  std::vector<std::string> violations();
  struct Counts {
    int made = 0, aborts_begun = 0, aborts_done = 0, finalized = 0, destroyed = 0;
    std::vector<int> ctas;  // of each that was made
  };
  Counts counts();

  NcclResult get_unique_id(NcclId& id) override;
  NcclResult init_rank(NcclComm& comm, int ranks, const NcclId& id, int rank,
                       int max_ctas) override;
  NcclResult state(NcclComm comm) override;
  std::string last_error(NcclComm comm) override;
  std::string error_text(NcclResult result) override;
  void abort(NcclComm comm) override;
  NcclResult finalize(NcclComm comm) override;
  void destroy(NcclComm comm) override;
  NcclResult group_start() override;
  NcclResult group_end() override;
  NcclResult all_gather(const void* in, void* out, size_t bytes, NcclComm comm,
                        Stream& stream) override;
  NcclResult all_reduce_sum(const void* in, void* out, size_t count, NcclType type, NcclComm comm,
                            Stream& stream) override;
  NcclResult send(const void* from, size_t bytes, int peer, NcclComm comm, Stream& stream) override;
  NcclResult recv(void* to, size_t bytes, int peer, NcclComm comm, Stream& stream) override;

 private:
  enum class Kind : uint8_t { kGather, kSum, kMessages };
  struct Message {
    std::byte* memory;
    size_t bytes;
    int from, to;
  };
  // One rank's part of a collective, or its messages of a group.
  struct Kernel {
    Kind kind = Kind::kGather;
    const void* in = nullptr;
    void* out = nullptr;
    size_t bytes = 0;  // of `out`
    std::vector<Message> sends, receives;
    bool launched = false, running = false, done = false;
  };
  using KernelPtr = std::shared_ptr<Kernel>;
  struct Comm;
  struct Group;
  struct World {
    std::vector<Comm*> ranks;
    int come = 0;
  };
  struct Comm {
    World* world = nullptr;
    int rank = 0;
    std::thread::id thread;
    int looks_left = 0;
    NcclResult error = NcclResult::kSuccess;
    bool aborted = false, finalizing = false, destroyed = false;
    std::vector<std::pair<KernelPtr, Stream*>> begun;  // not in a stream yet
    std::deque<KernelPtr> kernels;                     // in the stream, not done
    std::vector<KernelPtr> broken;                     // ended with nothing done
  };

  static Comm& of(NcclComm comm) { return *reinterpret_cast<Comm*>(comm); }
  static Group& group_of_thread();
  NcclResult failing(const char* name);
  bool settled(const Comm& comm) const;
  bool may_give(const Comm& comm, const char* name);
  Kernel* collected(Comm& comm, const char* name, Stream& stream);
  NcclResult begin(Comm& comm, KernelPtr kernel, Stream& stream);
  void launch(Comm& comm);
  bool run(Comm& comm, const KernelPtr& kernel);
  void meet(World& world);
  void deliver(Kernel& from, Kernel& to);
  void collect(const std::vector<KernelPtr>& all);
  void violated(const std::string& rule);

  FakeStreams& streams_;
  const int looks_;
  std::map<int64_t, World> worlds_;
  std::vector<std::unique_ptr<Comm>> comms_;
  int64_t next_id_ = 1;
  std::map<std::string, NcclResult> failing_;
  bool aborts_held_ = false;
  std::condition_variable_any released_;
  std::vector<std::string> violations_;
  Counts counts_;
};

}  // namespace lockstep::core
