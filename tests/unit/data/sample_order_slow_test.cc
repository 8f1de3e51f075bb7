// Every count up to 70,000, one by one: what no argument about widths and walks can replace.
#include <gtest/gtest.h>

#include <vector>

#include "data/order/sample_order.h"

namespace lockstep::data {
namespace {

TEST(SampleOrderSlow, IsABijectionForEveryCountUpToSeventyThousand) {
  constexpr int64_t kLast = 70'000;
  std::vector<int64_t> seen_by(kLast, 0);  // the count that reached this sample last
  for (int64_t n = 1; n <= kLast; ++n) {
    const SampleOrder order(n, 1234, n % 5);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t image = order(i);
      ASSERT_TRUE(image >= 0 && image < n && seen_by[static_cast<size_t>(image)] != n)
          << "n " << n << " position " << i;
      seen_by[static_cast<size_t>(image)] = n;
    }
  }
}

}  // namespace
}  // namespace lockstep::data
