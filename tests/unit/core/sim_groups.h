// Ranks that are threads of a simulated machine, and what connects them.
#pragma once

#include <thread>

#include "core/comm/sim_communicator.h"
#include "core/kernels/sim_kernels.h"

namespace lockstep::core {

// The communicators of W ranks in groups of `shard_size`. Requires a world, which outlives them.
class SimGroups {
 public:
  SimGroups(int world_size, int shard_size) : shard_size_(shard_size) {
    const int copies = world_size / shard_size;
    world_ = std::make_shared<SimHub>("world", world_size);
    for (int g = 0; g < copies; ++g)
      shards_.push_back(std::make_shared<SimHub>("shard", shard_size));
    for (int s = 0; s < shard_size; ++s)
      copies_.push_back(std::make_shared<SimHub>("copies", copies));
  }
  struct OfRank {
    SimCommunicator world, shard, copies;
    Groups groups(at::Device device) { return {&world, &shard, &copies, device}; }
  };
  std::unique_ptr<OfRank> of(int rank) const {
    const int group = rank / shard_size_, place = rank % shard_size_;
    return std::make_unique<OfRank>(OfRank{
        SimCommunicator(world_, rank), SimCommunicator(shards_[static_cast<size_t>(group)], place),
        SimCommunicator(copies_[static_cast<size_t>(place)], group)});
  }

  // SimHub::fail_at, in the groups that share the state.
  void fail_at(SimHub::Link link, int64_t sequence) {
    for (const auto& hub : shards_) hub->fail_at(link, sequence);
  }

 private:
  int shard_size_;
  std::shared_ptr<SimHub> world_;
  std::vector<std::shared_ptr<SimHub>> shards_, copies_;
};

// Runs body(rank) on a thread for each rank of a machine; the first error in rank order, or none.
inline Result<void> on_sim(SimWorld::Options options, int ranks,
                           const std::function<Result<void>(int rank)>& body) {
  options.ranks = ranks;
  SimWorld world(options);
  std::vector<Result<void>> ends(static_cast<size_t>(ranks));
  const auto run = [&](int rank) -> Result<void> {
    try {
      at::set_num_threads(1);  // any rank's thread does the work of all devices
      sim_device().set_up(sim_device().of_rank(rank));
      return body(rank);
    } catch (const std::exception& e) {
      return Error{Code::kBug, e.what()};
    }
  };
  if (ranks == 1) return run(0);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      const SimRank turn(world, r);
      ends[static_cast<size_t>(r)] = run(r);
    });
  for (std::thread& t : threads) t.join();
  for (const Result<void>& end : ends) LOCKSTEP_RETURN_IF_ERROR(end);
  return {};
}

}  // namespace lockstep::core
