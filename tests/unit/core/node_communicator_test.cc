#include "core/comm/node_communicator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <thread>

#include "tests/support/thread_group.h"

namespace lockstep::core {
namespace {

// Runs f(communicator) on each of `size` ranks, threads of this process.
template <typename F>
void on_ranks(int size, double timeout_s, F f) {
  auto hub = std::make_shared<ThreadHub>(size);
  std::vector<std::thread> ranks;
  for (int r = 0; r < size; ++r)
    ranks.emplace_back([=] {
      auto group = share_memory(std::make_unique<ThreadCommunicator>(hub, r), timeout_s);
      ASSERT_TRUE(group.ok()) << group.error().message;
      f(std::move(group).value());
    });
  for (std::thread& rank : ranks) rank.join();
}

// What rank `from` sends to rank `to` as its collective `number`; known to both.
at::Tensor message(int64_t n, int from, int to, int number) {
  return at::arange(n, at::kInt).mul_(7).add_(from * 10'007 + to * 101 + number);
}

// Elements that `from` sends to `to`; none for some.
int64_t count(int from, int to, int number) {
  std::mt19937 random(static_cast<unsigned>(number * 64 + from * 8 + to));
  return random() % 4 == 0 ? 0 : static_cast<int64_t>(random() % 20'000);
}

struct Issued {
  PendingPtr pending;
  at::Tensor out, expected;
};

Issued gather(Communicator& group, int number) {
  const int64_t n = count(0, 0, number);
  at::Tensor in = message(n, group.rank(), 0, number);
  std::vector<at::Tensor> all;
  for (int r = 0; r < group.world_size(); ++r) all.push_back(message(n, r, 0, number));
  at::Tensor out = at::zeros({n * group.world_size()}, at::kInt);
  PendingPtr pending = group.all_gather(out, in);
  in.zero_();  // its bytes are on their way
  return {std::move(pending), out, at::cat(all)};
}

Issued exchange(Communicator& group, int number) {
  const int me = group.rank();
  std::vector<at::Tensor> sent, expected;
  std::vector<int64_t> in_counts, out_counts;
  for (int r = 0; r < group.world_size(); ++r) {
    in_counts.push_back(count(me, r, number));
    out_counts.push_back(count(r, me, number));
    sent.push_back(message(in_counts.back(), me, r, number));
    expected.push_back(message(out_counts.back(), r, me, number));
  }
  at::Tensor in = at::cat(sent), wanted = at::cat(expected);
  at::Tensor out = at::zeros_like(wanted);
  PendingPtr pending = group.all_to_all(out, out_counts, in, in_counts);
  in.zero_();
  return {std::move(pending), out, wanted};
}

TEST(NodeCommunicator, EverythingArrivesInWhateverOrderItIsWaitedFor) {
  for (int ranks : {2, 3, 5})
    on_ranks(ranks, 20, [](std::unique_ptr<Communicator> group) {
      std::mt19937 random(static_cast<unsigned>(group->rank()));
      std::deque<Issued> under_way;
      for (int number = 0; number < 400; ++number) {
        under_way.push_back(number % 3 == 0 ? exchange(*group, number) : gather(*group, number));
        while (under_way.size() > random() % 8) {
          const size_t k = random() % under_way.size();
          ASSERT_TRUE(under_way[k].pending->wait().ok());
          ASSERT_TRUE(at::equal(under_way[k].out, under_way[k].expected)) << number;
          under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(k));
        }
      }
      for (Issued& one : under_way) ASSERT_TRUE(one.pending->wait().ok());
    });
}

TEST(NodeCommunicator, CountsWhatOthersSend) {
  on_ranks(3, 20, [](std::unique_ptr<Communicator> group) {
    at::Tensor in = at::zeros({100}, at::kFloat), out = at::zeros({300}, at::kFloat);
    ASSERT_TRUE(group->all_gather(out, in, Traffic::kGather)->wait().ok());
    EXPECT_EQ(group->wire_bytes().gather.all, 800);
    EXPECT_EQ(group->wire_bytes().gather.other_nodes, 0);
  });
}

TEST(NodeCommunicator, ARankThatIsGoneIsNamed) {
  on_ranks(3, 20, [](std::unique_ptr<Communicator> group) {
    if (group->rank() == 1) return;  // and its memory with it
    at::Tensor in = at::zeros({10}), out = at::zeros({30});
    const Result<void> done = group->all_gather(out, in)->wait();
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, Code::kPeerLost);
    EXPECT_EQ(done.error().message, "all-gather #1: rank 1 is gone");
  });
}

TEST(NodeCommunicator, ASilentRankIsNamedAtTheDeadline) {
  std::atomic<int> waiting = 1;
  on_ranks(2, 0.2, [&](std::unique_ptr<Communicator> group) {
    if (group->rank() == 0) {
      at::Tensor in = at::zeros({10}), out = at::zeros({20});
      const Result<void> done = group->all_gather(out, in)->wait();
      waiting = 0;
      ASSERT_FALSE(done.ok());
      EXPECT_NE(done.error().message.find("no answer from rank 1 in 0.2 s"), std::string::npos)
          << done.error().message;
    }
    while (waiting.load() != 0) std::this_thread::yield();
  });
}

}  // namespace
}  // namespace lockstep::core
