// Products of CPUs without AVX-512, on whatever CPU runs this.
#include "core/kernels/matmul.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::core {
namespace {

// Small whole numbers: sums of products are exact in fp32 in any order.
at::Tensor whole_numbers(at::IntArrayRef sizes) {
  return at::randint(-8, 9, sizes, at::kFloat).to(at::kBFloat16);
}

at::Tensor expected(const at::Tensor& a, const at::Tensor& b) {
  return at::matmul(a.to(at::kDouble), b.to(at::kDouble)).to(at::kFloat).to(at::kBFloat16);
}

// Rows or columns of each factor lie together, and the last panels are smaller than the others.
TEST(Matmul, WidenedPanelsAreTheProductRoundedOnce) {
  at::manual_seed(1);
  constexpr int64_t kRows = 37, kInner = 53, kColumns = 41;
  const at::Tensor a = whole_numbers({kRows, kInner}), b = whole_numbers({kInner, kColumns});
  const at::Tensor want = expected(a, b);
  EXPECT_GT(want.abs().max().item<float>(), 256.0f);  // where bf16 has gaps between whole numbers
  for (const at::Tensor& x : {a, a.t().contiguous().t()})
    for (const at::Tensor& y : {b, b.t().contiguous().t()})
      for (const int64_t panel : {int64_t{1}, int64_t{60}, 10 * kInner, kWidenedPanel}) {
        const at::Tensor out = at::full({kRows, kColumns}, NAN, at::kBFloat16);
        multiply_widened(x, y, out, /*beta=*/0, /*alpha=*/1, panel);
        EXPECT_TRUE(at::equal(out, want)) << panel;
      }
}

TEST(Matmul, WidenedStacksAndSums) {
  at::manual_seed(2);
  const at::Tensor a = whole_numbers({3, 5, 7}), b = whole_numbers({3, 4, 7}).transpose(1, 2);
  const at::Tensor out = at::empty({3, 5, 4}, at::kBFloat16);
  multiply_widened(a, b, out, /*beta=*/0, /*alpha=*/1);
  EXPECT_TRUE(at::equal(out, expected(a, b)));

  const at::Tensor sum = whole_numbers({5, 4});
  const at::Tensor want =
      (2 * sum.to(at::kDouble) - at::matmul(a[0].to(at::kDouble), b[0].to(at::kDouble)))
          .to(at::kBFloat16);
  multiply_widened(a[0], b[0], sum, /*beta=*/2, /*alpha=*/-1);
  EXPECT_TRUE(at::equal(sum, want));
}

TEST(Matmul, NothingTimesNothing) {
  const at::Tensor out = at::full({2, 3}, NAN, at::kBFloat16);
  multiply_widened(whole_numbers({2, 0}), whole_numbers({0, 3}), out, /*beta=*/0, /*alpha=*/1);
  EXPECT_TRUE(at::equal(out, at::zeros({2, 3}, at::kBFloat16)));
  const at::Tensor none = at::empty({0, 3}, at::kBFloat16);
  multiply_widened(whole_numbers({0, 2}), whole_numbers({2, 3}), none, /*beta=*/0, /*alpha=*/1);
}

// What training asks for is the same product on every CPU, but for the last bit.
TEST(Matmul, TrainingsProductsAgreeWithTheWidenedOnes) {
  at::manual_seed(3);
  const at::Tensor a = at::randn({64, 96}).to(at::kBFloat16);
  const at::Tensor b = at::randn({96, 80}).to(at::kBFloat16);
  const at::Tensor widened = at::empty({64, 80}, at::kBFloat16);
  multiply_widened(a, b, widened, /*beta=*/0, /*alpha=*/1);
  EXPECT_TRUE(at::allclose(product(a, b).to(at::kFloat), widened.to(at::kFloat), 8e-3, 1e-3));
  at::Tensor sum = at::zeros({64, 80}, at::kBFloat16);
  multiply_add(a, b, sum, /*beta=*/1, /*alpha=*/0.5);
  EXPECT_TRUE(at::allclose(2 * sum.to(at::kFloat), widened.to(at::kFloat), 8e-3, 1e-3));
}

}  // namespace
}  // namespace lockstep::core
