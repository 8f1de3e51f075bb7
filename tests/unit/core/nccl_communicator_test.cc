// The communicator over NCCL on a NCCL in memory (tests/support/fake_nccl.h), ranks as threads.
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <latch>
#include <random>
#include <thread>

#include "core/comm/device_communicator.h"
#include "core/comm/interruption.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/known_messages.h"
#include "tests/support/thread_group.h"

namespace lockstep::core {
namespace {

constexpr double kLong_s = 60;    // nobody waits it out
constexpr double kShort_s = 0.2;  // somebody does

// What the ranks of a test share. Never freed: threads that abort may outlive the test.
struct World {
  FakeStreams streams;
  FakeNccl nccl{streams};
};

// One rank.
struct Rank {
  World& world;
  int rank;
  const FakeStreamDevice& device;
  std::unique_ptr<Communicator> comm;
  int size() const { return comm->world_size(); }
};

DeviceGroup group_of(int ranks, double timeout_s, double init_timeout_s = kLong_s) {
  return {std::vector<int>(static_cast<size_t>(ranks)), {}, 16, init_timeout_s, timeout_s};
}

// Runs f(rank) on each of `size` ranks, whose communicators wait for `timeout_s` at most.
template <typename F>
World& on_nccl_ranks(int size, double timeout_s, F f, World& world = *new World) {
  auto hub = std::make_shared<ThreadHub>(size);
  std::vector<std::thread> ranks;
  std::latch connected(size);  // an interruption before would end the others' connecting
  for (int r = 0; r < size; ++r)
    ranks.emplace_back([&, r] {
      auto& device = *new FakeStreamDevice(world.streams);
      auto comm = connect_devices(world.nccl, device, std::make_unique<ThreadCommunicator>(hub, r),
                                  group_of(size, timeout_s));
      connected.arrive_and_wait();
      ASSERT_TRUE(comm.ok()) << comm.error().message;
      f(Rank{world, r, device, std::move(comm).value()});
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(world.nccl.violations(), std::vector<std::string>());
  return world;
}

void expect_aborts(World& world, int nccl_count) {
  EXPECT_TRUE(
      test_support::eventually([&] { return world.nccl.counts().aborts_done >= nccl_count; }));
  EXPECT_EQ(world.nccl.counts().aborts_begun, nccl_count);
}

// Elements that `from` sends to `to`; none for some, and nothing to or from an idle rank.
int64_t nccl_count(int from, int to, int number) {
  std::mt19937 random(static_cast<unsigned>(number * 64 + from * 8 + to));
  const int idle = number % 4;
  return from == idle || to == idle || random() % 4 == 0 ? 0 : static_cast<int64_t>(random() % 99);
}

Issued gather(Communicator& comm, int number) { return gather(comm, 1 + number % 5, number); }

Issued exchange(Communicator& comm, int number) { return exchange(comm, nccl_count, number); }

Issued sum(Communicator& comm, int number) {
  const auto ranks = static_cast<float>(comm.world_size());
  at::Tensor both = at::full({3}, static_cast<float>(comm.rank() + number), at::kFloat);
  const float all = ranks * static_cast<float>(number) + ranks * (ranks - 1) / 2;
  return {comm.all_reduce_sum(both), both, at::full({3}, all, at::kFloat)};
}

Issued any(Communicator& comm, int number) {
  if (number % 5 == 0) return sum(comm, number);
  return number % 2 == 0 ? gather(comm, number) : exchange(comm, number);
}

std::string error_of(const Result<void>& done) {
  EXPECT_FALSE(done.ok());
  if (done.ok()) return "";
  EXPECT_EQ(done.error().code, Code::kPeerLost);
  return done.error().message;
}

TEST(NcclCommunicator, EverythingArrivesInWhateverOrderItIsWaitedFor) {
  for (int ranks : {1, 2, 3, 4}) {
    World& world = on_nccl_ranks(ranks, kLong_s, [](Rank rank) {
      expect_all_arrive(rank.rank, 200, 6, [&](int number) { return any(*rank.comm, number); });
    });
    const auto counts = world.nccl.counts();
    EXPECT_EQ(counts.made, 2 * ranks);
    EXPECT_EQ(counts.finalized, 2 * ranks) << "each ends in order";
    EXPECT_EQ(counts.destroyed, 2 * ranks);
    EXPECT_EQ(counts.aborts_begun, 0);
    EXPECT_EQ(counts.ctas, std::vector<int>(static_cast<size_t>(2 * ranks), 16));
  }
}

// A collective reads what the current stream writes first, however late that is; and it does not
// keep the host waiting for it.
TEST(NcclCommunicator, ACollectiveBeginsAfterTheCurrentStream) {
  std::atomic<int> issued = 0;
  on_nccl_ranks(2, kLong_s, [&](Rank rank) {
    at::Tensor in = at::zeros({2}, at::kInt), out = at::zeros({4}, at::kInt);
    std::atomic<bool> may_write = false;
    static_cast<FakeStream&>(*rank.device.current_stream()).give([&] {
      if (may_write) in.fill_(rank.rank + 1);
      return may_write.load();
    });
    const PendingPtr pending = rank.comm->all_gather(out, in);
    ++issued;
    ASSERT_TRUE(test_support::eventually([&] { return issued == 2; }));
    rank.world.streams.look();  // all that could be done by now is
    may_write = true;
    ASSERT_TRUE(pending->wait().ok());
    EXPECT_TRUE(at::equal(out, at::tensor({1, 1, 2, 2}, at::kInt))) << out;
  });
}

// A collective of one kind that stands still does not hold up the other kind.
TEST(NcclCommunicator, GathersAndExchangesRunSideBySide) {
  on_nccl_ranks(2, kLong_s, [](Rank rank) {
    std::optional<Issued> late;
    if (rank.rank == 0) late = gather(*rank.comm, 1);
    Issued now = exchange(*rank.comm, 2);
    ASSERT_TRUE(now.pending->wait().ok());
    EXPECT_TRUE(at::equal(now.out, now.expected));
    if (rank.rank == 1) late = gather(*rank.comm, 1);
    ASSERT_TRUE(late->pending->wait().ok());
    EXPECT_TRUE(at::equal(late->out, late->expected));
  });
}

// Rank 1 never comes. Rank 0 gives up at its deadline, does not wait for the abort, and touches
// nothing that was aborted.
TEST(NcclCommunicator, APeerThatDoesNotComeIsGivenUpAtTheDeadline) {
  World& world = *new World;
  world.nccl.hold_aborts(true);
  std::atomic<bool> over = false;
  on_nccl_ranks(
      2, kShort_s,
      [&](Rank rank) {
        if (rank.rank == 1) {
          EXPECT_TRUE(test_support::eventually([&] { return over.load(); }));
          return interrupt();  // nobody comes to an orderly end
        }
        Issued hung = exchange(*rank.comm, 2), other = exchange(*rank.comm, 6);
        EXPECT_EQ(error_of(hung.pending->wait()),
                  "exchange #1: no answer from a peer within 0.2 s");
        EXPECT_EQ(error_of(other.pending->wait()), "exchange #2: an earlier collective failed");
        EXPECT_TRUE(
            test_support::eventually([&] { return rank.world.nccl.counts().aborts_begun == 1; }));
        EXPECT_EQ(error_of(exchange(*rank.comm, 3).pending->wait()),
                  "exchange #3: an earlier collective failed");
        EXPECT_EQ(error_of(hung.pending->wait()), "exchange #1: an earlier collective failed");
        over = true;
      },
      world);
  clear_interruption();
  world.nccl.hold_aborts(false);
  expect_aborts(world, 4);
}

// What a kernel may still write to is never given back, although nobody waits for it any more.
TEST(NcclCommunicator, BuffersOfWhatFailedAreNeverFreed) {
  World& world = *new World;
  world.nccl.hold_aborts(true);
  auto& memory = *new std::vector<int>(64);
  std::atomic<int> freed = 0;
  const auto tensor = [&](int64_t n) {
    return at::from_blob(
        memory.data(), {n}, [&](void*) { ++freed; }, at::kInt);
  };
  on_nccl_ranks(
      2, kShort_s,
      [&](Rank rank) {
        if (rank.rank == 1) {
          EXPECT_TRUE(
              test_support::eventually([&] { return rank.world.nccl.counts().aborts_begun > 0; }));
          return;
        }
        PendingPtr waited = rank.comm->all_gather(tensor(8), at::zeros({4}, at::kInt));
        PendingPtr dropped = rank.comm->all_gather(tensor(8), at::zeros({4}, at::kInt));
        EXPECT_FALSE(waited->wait().ok());
        waited.reset();
        dropped.reset();
        EXPECT_FALSE(rank.comm->all_gather(tensor(8), at::zeros({4}, at::kInt))->wait().ok());
        interrupt();
      },
      world);
  clear_interruption();
  EXPECT_EQ(freed, 1) << "only the buffer of what did not begin";
  world.nccl.hold_aborts(false);
  expect_aborts(world, 4);
  EXPECT_EQ(memory[0], static_cast<int>(0xEEEEEEEE)) << "and it does write";
}

// The error of a peer comes while the kernels run, or with their end.
TEST(NcclCommunicator, ALateErrorFailsWhatIsUnderWay) {
  World& world = on_nccl_ranks(2, kLong_s, [](Rank rank) {
    ASSERT_TRUE(gather(*rank.comm, 1).pending->wait().ok());
    if (rank.rank == 1) {
      EXPECT_TRUE(
          test_support::eventually([&] { return rank.world.nccl.counts().aborts_begun > 0; }));
      return;
    }
    Issued late = gather(*rank.comm, 2);
    rank.world.nccl.fail(0, 0, NcclResult::kRemoteError);
    EXPECT_EQ(error_of(late.pending->wait()), "all-gather #2: error 6; said by the fake");
    EXPECT_EQ(error_of(gather(*rank.comm, 3).pending->wait()),
              "all-gather #3: an earlier collective failed");
    interrupt();
  });
  clear_interruption();
  expect_aborts(world, 4);
}

TEST(NcclCommunicator, AnErrorOfACallIsThatOfItsCollective) {
  for (const char* call : {"group_start", "recv", "send", "group_end", "all_gather"}) {
    World& world = on_nccl_ranks(1, kLong_s, [&](Rank rank) {
      rank.world.nccl.fail_call(call, NcclResult::kSystemError);
      const bool gathers = std::string(call) == "all_gather";
      const at::Tensor both = at::zeros({2}, at::kInt);
      const PendingPtr pending =
          gathers ? rank.comm->all_gather(both, both) : rank.comm->all_to_all(both, {2}, both, {2});
      EXPECT_EQ(error_of(pending->wait()),
                text(gathers ? "all-gather" : "exchange", " #1: error 2; said by the fake"));
    });
    expect_aborts(world, 1);
    EXPECT_EQ(world.nccl.counts().destroyed, 1) << "the other link ends in order";
  }
}

TEST(NcclCommunicator, WhoWaitsLearnsThatTheGenerationIsOver) {
  World& world = on_nccl_ranks(2, kLong_s, [](Rank rank) {
    if (rank.rank == 1) {
      EXPECT_TRUE(test_support::eventually([] { return interrupted(); }));
      return;
    }
    Issued hung = gather(*rank.comm, 1);
    std::thread other([] { interrupt(); });
    EXPECT_EQ(error_of(hung.pending->wait()), "all-gather #1: this generation is over");
    other.join();
  });
  clear_interruption();
  expect_aborts(world, 4);
}

// Rank 2 is gone when the ranks connect.
TEST(NcclCommunicator, ARankThatDoesNotConnectIsGivenUpAtTheDeadline) {
  World& world = *new World;
  auto hub = std::make_shared<ThreadHub>(2);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back([&, r] {
      FakeStreamDevice device(world.streams);
      if (r == 1) {  // takes the id, and no more
        ThreadCommunicator host(hub, r);
        const at::Tensor id = at::zeros({129}, at::kByte), all = at::zeros({258}, at::kByte);
        EXPECT_TRUE(host.all_gather(all, id, Traffic::kOther)->wait().ok());
        return;
      }
      auto comm = connect_devices(world.nccl, device, std::make_unique<ThreadCommunicator>(hub, r),
                                  group_of(2, kLong_s, kShort_s));
      ASSERT_FALSE(comm.ok());
      EXPECT_EQ(comm.error().message, "connecting over NCCL: no answer from a peer within 0.2 s");
    });
  for (std::thread& rank : ranks) rank.join();
  expect_aborts(world, 1);
  EXPECT_EQ(world.nccl.violations(), std::vector<std::string>());
}

// It says so, instead of leaving the others to wait.
TEST(NcclCommunicator, RankZeroWithoutNcclEndsAll) {
  World& world = *new World;
  world.nccl.fail_call("get_unique_id", NcclResult::kInternalError);
  auto hub = std::make_shared<ThreadHub>(3);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 3; ++r)
    ranks.emplace_back([&, r] {
      FakeStreamDevice device(world.streams);
      auto comm = connect_devices(world.nccl, device, std::make_unique<ThreadCommunicator>(hub, r),
                                  group_of(3, kLong_s));
      ASSERT_FALSE(comm.ok());
      EXPECT_EQ(comm.error().message, "NCCL cannot start on rank 0: error 3");
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(world.nccl.counts().made, 0);
}

TEST(NcclCommunicator, WhatCannotConnectIsAborted) {
  World& world = *new World;
  world.nccl.fail_call("init_rank", NcclResult::kInvalidUsage);
  FakeStreamDevice device(world.streams);
  auto comm = connect_devices(
      world.nccl, device, std::make_unique<ThreadCommunicator>(std::make_shared<ThreadHub>(1), 0),
      group_of(1, kLong_s));
  ASSERT_FALSE(comm.ok());
  EXPECT_EQ(comm.error().message, "NCCL cannot connect 1 ranks: error 5");
  expect_aborts(world, 1);
}

// One of three ranks is gone; the others meet again while the old communicators still abort, and
// what those write late does not reach them.
TEST(NcclCommunicator, TheOthersFormANewOneWhileTheOldOneAborts) {
  World& world = *new World;
  world.nccl.hold_aborts(true);
  std::atomic<int> failed = 0;
  on_nccl_ranks(
      3, kShort_s,
      [&](Rank rank) {
        Issued first = gather(*rank.comm, 1);
        ASSERT_TRUE(first.pending->wait().ok());
        if (rank.rank < 2) {
          EXPECT_FALSE(gather(*rank.comm, 2).pending->wait().ok());
          ++failed;
        }
        EXPECT_TRUE(test_support::eventually([&] { return failed == 2; }));
        interrupt();
      },
      world);
  clear_interruption();
  on_nccl_ranks(
      2, kLong_s,
      [&](Rank rank) {
        for (int number = 0; number < 20; ++number) {
          Issued one = any(*rank.comm, number);
          if (number == 10) rank.world.nccl.hold_aborts(false);
          ASSERT_TRUE(one.pending->wait().ok());
          EXPECT_TRUE(at::equal(one.out, one.expected)) << number;
        }
      },
      world);
  expect_aborts(world, 6);
  EXPECT_EQ(world.nccl.counts().destroyed, 4);
}

TEST(NcclCommunicator, OnlyTheLinksThatAreUsedAreMade) {
  World& world = *new World;
  FakeStreamDevice device(world.streams);
  const auto host = [] {
    return std::make_unique<ThreadCommunicator>(std::make_shared<ThreadHub>(1), 0);
  };
  DeviceGroup group = group_of(1, kLong_s);
  group.links = {.gathers = false, .exchanges = false};
  auto alone = connect_devices(world.nccl, device, host(), group);
  ASSERT_TRUE(alone.ok());
  EXPECT_NE(dynamic_cast<ThreadCommunicator*>(alone->get()), nullptr);
  EXPECT_EQ(world.nccl.counts().made, 0);
  group.links = {.gathers = false, .exchanges = true};
  auto sums = connect_devices(world.nccl, device, host(), group);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(world.nccl.counts().made, 1);
  ASSERT_TRUE(sum(**sums, 4).pending->wait().ok());
  EXPECT_DEATH((void)gather(**sums, 1), "all-gather #2 in a group that was created without them");
}

}  // namespace
}  // namespace lockstep::core
