// Ranks that are threads of a simulated machine, and what connects them.
#pragma once

#include <ATen/Parallel.h>
#include <thread>

#include "core/comm/sim_communicator.h"
#include "core/comm/two_legs.h"
#include "core/kernels/sim/sim_kernels.h"
#include "layout/shard_layout.h"

namespace lockstep::core {

// The communicators of W ranks in groups. Requires a world, which outlives them.
class SimGroups {
 public:
  SimGroups(int world_size, const layout::GroupSizes& sizes, int ranks_of_node = 0)
      : sizes_(sizes), ranks_of_node_(ranks_of_node) {
    const int groups = world_size / sizes.group;
    world_ = std::make_shared<SimHub>("world", world_size);
    for (int g = 0; g < groups; ++g)
      groups_.push_back(std::make_shared<SimHub>("group", sizes.group));
    for (int p = 0; p < sizes.group; ++p)
      peers_.push_back(std::make_shared<SimHub>("peers", groups));
  }
  struct OfRank {
    OfRank(const SimGroups& all, int rank)
        : world(all.world_, rank),
          group(all.groups_[static_cast<size_t>(rank / all.sizes_.group)], rank % all.sizes_.group),
          peers(all.peers_[static_cast<size_t>(rank % all.sizes_.group)], rank / all.sizes_.group),
          of_copies(group, peers, all.sizes_.shard),
          ranks_of_node(all.ranks_of_node_) {}
    SimCommunicator world, group, peers;
    CopyGroups of_copies;
    int ranks_of_node;
    Groups groups(at::Device device) {
      return {&world, &group,       &peers, &of_copies.shard(), &of_copies.copies(),
              device, ranks_of_node};
    }
  };
  std::unique_ptr<OfRank> of(int rank) const { return std::make_unique<OfRank>(*this, rank); }

  // SimHub::fail_at, inside the groups.
  void fail_at(SimHub::Link link, int64_t sequence) {
    for (const auto& hub : groups_) hub->fail_at(link, sequence);
  }

 private:
  layout::GroupSizes sizes_;
  int ranks_of_node_;
  std::shared_ptr<SimHub> world_;
  std::vector<std::shared_ptr<SimHub>> groups_, peers_;
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
