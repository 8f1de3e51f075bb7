#include "core/comm/node_communicator.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/support/known_messages.h"
#include "tests/support/thread_group.h"

namespace lockstep::core {
namespace {

// Runs f(communicator) on each of `size` ranks, threads of this process.
template <typename F>
void on_node(int size, double timeout_s, F f) {
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

// Elements that `from` sends to `to`; none for some.
int64_t shared_count(int from, int to, int number) {
  std::mt19937 random(static_cast<unsigned>(number * 64 + from * 8 + to));
  return random() % 4 == 0 ? 0 : static_cast<int64_t>(random() % 20'000);
}

TEST(NodeCommunicator, EverythingArrivesInWhateverOrderItIsWaitedFor) {
  for (int ranks : {2, 3, 5})
    on_node(ranks, 20, [](std::unique_ptr<Communicator> group) {
      expect_all_arrive(group->rank(), 400, 8, [&](int number) {
        return number % 3 == 0
                   ? exchange(*group, shared_count, number, Input::kOverwritten)
                   : gather(*group, shared_count(0, 0, number), number, Input::kOverwritten);
      });
    });
}

TEST(NodeCommunicator, CountsWhatOthersSend) {
  on_node(3, 20, [](std::unique_ptr<Communicator> group) {
    at::Tensor in = at::zeros({100}, at::kFloat), out = at::zeros({300}, at::kFloat);
    ASSERT_TRUE(group->all_gather(out, in, Traffic::kGather)->wait().ok());
    EXPECT_EQ(group->wire_bytes().gather.all, 800);
    EXPECT_EQ(group->wire_bytes().gather.other_nodes, 0);
  });
}

TEST(NodeCommunicator, ARankThatIsGoneIsNamed) {
  on_node(3, 20, [](std::unique_ptr<Communicator> group) {
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
  on_node(2, 0.2, [&](std::unique_ptr<Communicator> group) {
    if (group->rank() == 0) {
      at::Tensor in = at::zeros({10}), out = at::zeros({20});
      const Result<void> done = group->all_gather(out, in)->wait();
      waiting = 0;
      ASSERT_FALSE(done.ok());
      EXPECT_NE(done.error().message.find("no answer from rank 1 within 0.2 s"), std::string::npos)
          << done.error().message;
    }
    while (waiting.load() != 0) std::this_thread::yield();
  });
}

}  // namespace
}  // namespace lockstep::core
