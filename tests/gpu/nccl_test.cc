// The NCCL communicator on as many GPUs as this machine has, ranks as threads. Ranks that share a
// GPU cannot use NCCL: with one GPU this tests one rank. What can go wrong is tested without a GPU,
// on a fake of NCCL (tests/unit/core/nccl_communicator_test.cc); here is what only NCCL can show.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "base/text.h"
#include "core/comm/device_communicator.h"
#include "core/device/devices.h"
#include "tests/support/thread_group.h"

namespace lockstep::core {
namespace {

std::unique_ptr<Communicator> connect(int rank, const std::shared_ptr<ThreadHub>& hub,
                                      double timeout_s) {
  local_device().set_up(local_device().of_rank(rank));
  auto connected = connect_devices(
      nccl_library(), local_device(), std::make_unique<ThreadCommunicator>(hub, rank),
      {std::vector<int>(static_cast<size_t>(hub->size()), 0), {}, 16, 60, timeout_s});
  EXPECT_TRUE(connected.ok()) << connected.error().message;
  return connected.ok() ? std::move(connected).value() : nullptr;
}

// f(rank, communicator) on each of as many ranks as there are devices.
template <typename F>
void on_ranks(double timeout_s, F f) {
  const int ranks = local_device().count();
  auto hub = std::make_shared<ThreadHub>(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([=] {
      if (const auto comm = connect(r, hub, timeout_s)) f(r, *comm);
    });
  for (std::thread& t : threads) t.join();
}

at::TensorOptions floats(int rank) {
  return at::TensorOptions(at::kFloat).device(local_device().of_rank(rank));
}

void check_equal_counts(int rank, Communicator& comm) {
  const int ranks = comm.world_size();
  const std::vector<int64_t> counts(static_cast<size_t>(ranks), 3);
  const at::Tensor mine = at::full({5}, rank, floats(rank));
  const at::Tensor all = at::empty({ranks * 5}, floats(rank));
  const at::Tensor parts = at::arange(ranks * 3, floats(rank)) + 100 * rank;
  const at::Tensor from_all = at::empty({ranks * 3}, floats(rank)),
                   sum = at::ones({4}, floats(rank));
  PendingPtr gather = comm.all_gather(all, mine);
  PendingPtr exchange = comm.all_to_all(from_all, counts, parts, counts);
  ASSERT_TRUE(exchange->wait().ok());
  ASSERT_TRUE(gather->wait().ok());
  ASSERT_TRUE(comm.all_reduce_sum(sum)->wait().ok());
  for (int r = 0; r < ranks; ++r) {
    EXPECT_EQ(all[5 * r].item<float>(), r);
    EXPECT_EQ(from_all[3 * r].item<float>(), 100 * r + 3 * rank);
  }
  EXPECT_EQ(sum[0].item<float>(), ranks);
}

TEST(GpuNccl, DataArrivesInRankOrder) { on_ranks(60, check_equal_counts); }

// Rank r sends (r + 1) * (to + 1) elements, and the last rank neither sends nor receives.
TEST(GpuNccl, UnequalPartsArriveAndAnIdleRankIsLeftAlone) {
  on_ranks(60, [](int rank, Communicator& comm) {
    const int ranks = comm.world_size(), idle = ranks > 1 ? ranks - 1 : ranks;
    const auto count = [&](int from, int to) -> int64_t {
      return from == idle || to == idle ? 0 : int64_t{1} * (from + 1) * (to + 1);
    };
    std::vector<int64_t> in_counts, out_counts;
    std::vector<at::Tensor> wanted{at::empty({0}, floats(rank))};
    int64_t sent = 0, received = 0;
    for (int r = 0; r < ranks; ++r) {
      sent += in_counts.emplace_back(count(rank, r));
      received += out_counts.emplace_back(count(r, rank));
      wanted.push_back(at::full({out_counts.back()}, r, floats(rank)));
    }
    const at::Tensor in = at::full({sent}, rank, floats(rank));
    const at::Tensor out = at::empty({received}, floats(rank));
    ASSERT_TRUE(comm.all_to_all(out, out_counts, in, in_counts)->wait().ok());
    EXPECT_TRUE(at::equal(out, at::cat(wanted)));
  });
}

// The others go on with a new communicator on the same devices.
TEST(GpuNccl, APeerThatDoesNotComeIsGivenUpAndTheOthersMeetAgain) {
  if (local_device().count() < 2) GTEST_SKIP() << "needs two GPUs";
  std::promise<void> given_up;
  std::shared_future<void> over = given_up.get_future();
  on_ranks(5, [&](int rank, Communicator& comm) {
    if (rank != 0) return over.wait();
    const at::Tensor in = at::ones({1 << 20}, floats(rank));
    const at::Tensor out = at::empty({in.numel() * comm.world_size()}, floats(rank));
    const auto hung = comm.all_gather(out, in)->wait();
    given_up.set_value();
    ASSERT_FALSE(hung.ok());
    EXPECT_NE(hung.error().message.find("no answer from a peer within 5 s"), std::string::npos);
    EXPECT_FALSE(comm.all_gather(out, in)->wait().ok());
  });
  on_ranks(60, check_equal_counts);
}

}  // namespace
}  // namespace lockstep::core
