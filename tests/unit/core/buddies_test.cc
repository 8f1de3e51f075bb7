#include "core/comm/buddies.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "core/comm/shared_store.h"

namespace lockstep::core {
namespace {

GlooOptions place_of_two(int place) {
  GlooOptions o;
  o.rank = place;
  o.size = 2;
  o.node_of_rank = {0, 0};
  o.interface = "lo";
  o.threads = 1;
  o.init_timeout_s = o.timeout_s = 120;
  return o;
}

// f(buddies, rank, from) on each of `size` ranks, threads of this process. Returns the keys of
// their store.
template <typename F>
int64_t along_a_ring(int size, int shift, F f) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([=] {
      Buddies buddies(rank, [&](const std::string& name, int place) {
        return connect_gloo(place_of_two(place), with_prefix(name, store));
      });
      const int from = (rank + size - shift) % size;
      const auto connected = buddies.connect(from);
      ASSERT_TRUE(connected.ok()) << connected.error().message;
      f(buddies, rank, from);
    });
  for (std::thread& rank : ranks) rank.join();
  return store->getNumKeys();
}

// Rank r sends r * 1000 bytes: rank 0 none.
TEST(Buddies, EachOneSendsToOneAndHearsAnother) {
  for (const auto& [size, shift] : {std::pair{2, 1}, std::pair{5, 2}, std::pair{12, 1}})
    EXPECT_EQ(along_a_ring(size, shift,
                           [](Buddies& buddies, int rank, int from) {
                             for (int times = 0; times < 3; ++times) {
                               const at::Tensor out = at::full({rank * 1000}, rank, at::kByte);
                               const at::Tensor in = at::empty({from * 1000}, at::kByte);
                               ASSERT_TRUE(buddies.exchange(out, in).ok());
                               EXPECT_TRUE(at::equal(in, at::full_like(in, from)));
                             }
                           }),
              2 * size);
}

TEST(Buddies, ABuddyThatIsGoneEndsTheWait) {
  along_a_ring(3, 1, [](Buddies& buddies, int rank, int) {
    const at::Tensor out = at::full({8}, rank, at::kByte), in = at::empty({8}, at::kByte);
    ASSERT_TRUE(buddies.exchange(out, in).ok());  // so all are connected when one leaves
    if (rank == 1) return;                        // rank 2 waits for it
    const auto done = buddies.exchange(out, in);
    if (rank != 2) return;
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, Code::kPeerLost);
  });
}

}  // namespace
}  // namespace lockstep::core
