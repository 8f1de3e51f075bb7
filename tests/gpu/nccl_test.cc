// The NCCL communicator on as many GPUs as this machine has, ranks as threads: data arrives in rank
// order. Ranks that share a GPU cannot use NCCL: with one GPU this tests one rank.
#include <gtest/gtest.h>

#include <thread>

#include "base/text.h"
#include "core/comm/device_communicator.h"
#include "core/device/devices.h"
#include "tests/support/thread_group.h"

namespace lockstep::core {
namespace {

std::vector<int64_t> counts_of(int ranks, int64_t each) {
  return std::vector<int64_t>(static_cast<size_t>(ranks), each);
}

void check_rank(int rank, int ranks, const std::shared_ptr<ThreadHub>& hub) {
  const at::Device device = local_device().of_rank(rank);
  local_device().set_up(device);
  auto connected = connect_devices(std::make_unique<ThreadCommunicator>(hub, rank),
                                   std::vector<int>(static_cast<size_t>(ranks), 0), 60, 60);
  ASSERT_TRUE(connected.ok()) << connected.error().message;
  Communicator& comm = **connected;
  const auto options = at::TensorOptions(at::kFloat).device(device);
  const at::Tensor mine = at::full({5}, rank, options), all = at::empty({ranks * 5}, options);
  const at::Tensor parts = at::arange(ranks * 3, options) + 100 * rank;
  const at::Tensor from_all = at::empty({ranks * 3}, options), sum = at::ones({4}, options);
  PendingPtr gather = comm.all_gather(all, mine);
  PendingPtr exchange = comm.all_to_all(from_all, counts_of(ranks, 3), parts, counts_of(ranks, 3));
  ASSERT_TRUE(exchange->wait().ok());
  ASSERT_TRUE(gather->wait().ok());
  ASSERT_TRUE(comm.all_reduce_sum(sum)->wait().ok());
  for (int r = 0; r < ranks; ++r) {
    EXPECT_EQ(all[5 * r].item<float>(), r);
    EXPECT_EQ(from_all[3 * r].item<float>(), 100 * r + 3 * rank);
  }
  EXPECT_EQ(sum[0].item<float>(), ranks);
}

TEST(GpuNccl, DataArrivesInRankOrder) {
  const int ranks = local_device().count();
  auto hub = std::make_shared<ThreadHub>(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(check_rank, r, ranks, hub);
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace lockstep::core
