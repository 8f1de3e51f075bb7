// Which buffer of the pool serves a request.
#include "core/sharding/buffer_pool.h"

#include <gtest/gtest.h>

namespace lockstep::core {
namespace {

// Takes buffers of these sizes together and gives them back; returns their addresses.
std::vector<const void*> fill(BufferPool& pool, const std::vector<size_t>& sizes) {
  std::vector<c10::DataPtr> taken;
  std::vector<const void*> addresses;
  for (const size_t bytes : sizes) {
    taken.push_back(pool.take(bytes));
    addresses.push_back(taken.back().get());
  }
  for (c10::DataPtr& buffer : taken) pool.give(std::move(buffer));
  return addresses;
}

TEST(BufferPool, TheSmallestThatIsLargeEnoughServes) {
  BufferPool pool;
  const std::vector<const void*> at = fill(pool, {3000, 1000, 2000});
  const c10::DataPtr one = pool.take(1500), two = pool.take(1500);
  EXPECT_EQ(one.get(), at[2]);
  EXPECT_EQ(two.get(), at[0]);
  EXPECT_EQ(pool.allocated_bytes(), 6000u);
  const c10::DataPtr three = pool.take(1500);
  EXPECT_EQ(pool.allocated_bytes(), 7500u);
}

TEST(BufferPool, ABufferServesAQuarterOfItAndNoLess) {
  BufferPool pool;
  const std::vector<const void*> at = fill(pool, {4000});
  EXPECT_NE(pool.take(999).get(), at[0]);
  EXPECT_EQ(pool.allocated_bytes(), 4999u);
  c10::DataPtr quarter = pool.take(1000);
  EXPECT_EQ(quarter.get(), at[0]);
  pool.give(std::move(quarter));
  EXPECT_EQ(pool.take(4000).get(), at[0]) << "it stays as large as it was";
  EXPECT_EQ(pool.allocated_bytes(), 4999u);
}

TEST(BufferPool, TensorsGiveBackAllOfIt) {
  BufferPool pool;
  at::Tensor large = pool.take_tensor(1000, at::kFloat), undefined;
  const void* const at = large.data_ptr();
  pool.give_tensor(undefined);
  pool.give_tensor(large);
  EXPECT_FALSE(large.defined());
  at::Tensor rows = pool.take_tensor(600, at::kBFloat16).view({20, 30});
  EXPECT_EQ(rows.data_ptr(), at);
  EXPECT_EQ(rows.storage().nbytes(), 1200u);
  pool.give_tensor(rows);
  EXPECT_EQ(pool.take_tensor(1000, at::kFloat).data_ptr(), at);
  EXPECT_EQ(pool.allocated_bytes(), 4000u);
}

TEST(BufferPool, TakesNothingThatItDidNotGive) {
  BufferPool pool, other;
  EXPECT_DEATH(pool.give(other.take(8)), "not the pool's");
}

}  // namespace
}  // namespace lockstep::core
