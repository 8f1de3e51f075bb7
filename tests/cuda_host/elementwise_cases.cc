// Rotary positions, activations and dropout on plain memory.
#include "core/kernels/elementwise_kernels.h"

#include "core/kernels/dropout_kernels.h"
#include "tests/cuda_host/case_values.h"

namespace lockstep::core {
namespace {

using Doubles = std::vector<double>;

template <typename C>
class ElementwiseCases : public testing::Test {};
TYPED_TEST_SUITE(ElementwiseCases, Columns, ColumnNames);

double sigmoid64(double x) { return 1 / (1 + std::exp(-x)); }

// Gates from -40 to 40 saturate without NaN.
TYPED_TEST(ElementwiseCases, SwigluIsThatOfFp64) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr int64_t kRows = 65, kDim = 33;
  auto gate_up = random_values<T>(kRows * 2 * kDim, 1, 4);
  const auto dy = random_values<T>(kRows * kDim, 2);
  round_to(gate_up[0], -40);
  round_to(gate_up[1], 40);
  Doubles y, gradient(gate_up.size());
  for (size_t row = 0; row < kRows; ++row)
    for (size_t c = 0; c < kDim; ++c) {
      const size_t at = row * 2 * kDim + c;
      const double g = wide(gate_up[at]), u = wide(gate_up[at + kDim]);
      const double d = wide(dy[row * kDim + c]), s = sigmoid64(g);
      y.push_back(g * s * u);
      gradient[at] = d * u * s * (1 + g * (1 - s));
      gradient[at + kDim] = d * g * s;
    }
  on<Place>([&] {
    Array<Place, T> given(gate_up), out(dy), d(dy);
    swiglu_forward<Place>(given.get(), out.get(), kRows, kDim);
    swiglu_backward<Place>(d.get(), given.get(), kRows, kDim);
    expect_close(out.read(), y, 1e-5, "y");
    expect_close(given.read(), gradient, 2e-5, "gradient");
    return hash_of(out.read(), given.read());
  });
}

TYPED_TEST(ElementwiseCases, GegluIsThatOfFp64) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr int64_t kRows = 65, kDim = 33;
  const double root = std::sqrt(8 / std::acos(-1.0));  // 2 sqrt(2 / pi)
  const auto gate_up = random_values<T>(kRows * 2 * kDim, 1, 3);
  const auto dy = random_values<T>(kRows * kDim, 2);
  Doubles y, gradient(gate_up.size());
  for (size_t row = 0; row < kRows; ++row)
    for (size_t c = 0; c < kDim; ++c) {
      const size_t at = row * 2 * kDim + c;
      const double v = wide(gate_up[at]), u = wide(gate_up[at + kDim]);
      const double d = wide(dy[row * kDim + c]), s = sigmoid64(root * (v + 0.044715 * v * v * v));
      y.push_back(v * s * u);
      gradient[at] = d * u * (s + v * s * (1 - s) * root * (1 + 3 * 0.044715 * v * v));
      gradient[at + kDim] = d * v * s;
    }
  on<Place>([&] {
    Array<Place, T> given(gate_up), out(dy), d(dy);
    geglu_forward<Place>(given.get(), out.get(), kRows, kDim);
    geglu_backward<Place>(d.get(), given.get(), kRows, kDim);
    expect_close(out.read(), y, 1e-5, "y");
    expect_close(given.read(), gradient, 2e-5, "gradient");
    return hash_of(out.read(), given.read());
  });
}

TYPED_TEST(ElementwiseCases, SoftCapIsThatOfFp64) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr int64_t kCount = 1001;
  auto x = random_values<T>(kCount, 3, 6);
  const auto dy = random_values<T>(kCount, 4);
  round_to(x[0], -4000);
  Doubles y, gradient;
  for (size_t i = 0; i < kCount; ++i) y.push_back(5 * std::tanh(0.5 * wide(x[i]) / 5));
  on<Place>([&] {
    Array<Place, T> out(x), d(dy);
    soft_cap_forward<Place>(out.get(), kCount, 0.5f, 5.0f);
    expect_close(out.read(), y, 1e-6, "y");
    const Doubles rounded = widened(out.read());
    gradient.clear();
    for (size_t i = 0; i < kCount; ++i)
      gradient.push_back(wide(dy[i]) * 0.5 * (1 - rounded[i] * rounded[i] / 25));
    soft_cap_backward<Place>(out.get(), d.get(), kCount, 0.5f, 5.0f);
    expect_close(d.read(), gradient, 1e-6, "gradient");
    return hash_of(out.read(), d.read());
  });
}

TYPED_TEST(ElementwiseCases, GeluNewIsThatOfFp64) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr int64_t kCount = 1001;
  const double root = std::sqrt(8 / std::acos(-1.0));  // 2 sqrt(2 / pi)
  const auto x = random_values<T>(kCount, 3, 2), dy = random_values<T>(kCount, 4);
  Doubles y, gradient;
  for (size_t i = 0; i < kCount; ++i) {
    const double v = wide(x[i]), s = sigmoid64(root * (v + 0.044715 * v * v * v));
    y.push_back(v * s);
    gradient.push_back(wide(dy[i]) * (s + v * s * (1 - s) * root * (1 + 3 * 0.044715 * v * v)));
  }
  on<Place>([&] {
    Array<Place, T> given(x), out(dy), d(dy);
    gelu_forward<Place>(given.get(), out.get(), kCount);
    gelu_backward<Place>(d.get(), given.get(), kCount);
    expect_close(out.read(), y, 2e-6, "y");
    expect_close(given.read(), gradient, 1e-5, "gradient");
    return hash_of(out.read(), given.read());
  });
}

// Heads inside wider rows; positions repeat and are out of order; what is beside them stays.
TYPED_TEST(ElementwiseCases, RotaryTurnsPairsByTheAngleOfTheirPosition) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr int64_t kRows = 32, kHeads = 3, kHeadDim = 8, kHalf = 4, kWidth = 29, kSeqLen = 16;
  const auto x = random_values<T>(kRows * kWidth, 5);
  const Doubles angles = widened(random_values<float>(kSeqLen * kHalf, 6));
  std::vector<float> cos, sin;
  for (const double angle : angles) {
    cos.push_back(static_cast<float>(std::cos(angle)));
    sin.push_back(static_cast<float>(std::sin(angle)));
  }
  std::vector<int64_t> positions;
  for (int64_t r = 0; r < kRows; ++r) positions.push_back(r * 5 % kSeqLen);
  for (const float direction : {1.0f, -1.0f}) {
    Doubles want = widened(x);
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t i = 0; i < kHeads * kHalf; ++i) {
        const auto a = static_cast<size_t>(r * kWidth + i / kHalf * kHeadDim + i % kHalf);
        const size_t b = a + kHalf;
        const auto at = static_cast<size_t>(positions[static_cast<size_t>(r)] * kHalf + i % kHalf);
        const double c = wide(cos[at]), s = wide(sin[at]) * wide(direction);
        want[a] = wide(x[a]) * c - wide(x[b]) * s;
        want[b] = wide(x[b]) * c + wide(x[a]) * s;
      }
    on<Place>([&] {
      Array<Place, T> turned(x);
      Array<Place, float> cosines(cos), sines(sin);
      Array<Place, int64_t> places(positions);
      rotate_heads<Place>(turned.get(), cosines.get(), sines.get(), places.get(), kRows, kHeads,
                          kHeadDim, kWidth, direction);
      expect_close(turned.read(), want, 1e-6, "turned");
      return hash_of(turned.read());
    });
  }
}

// Which elements are kept is a function of (key, counter, place), also from the middle of a tensor.
TYPED_TEST(ElementwiseCases, DropoutDrawsByCounter) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr int64_t kCount = 1640;                         // ends inside a run
  const DropoutDraw draw{99, 7, uint32_t{1} << 30, 2.0f};  // a quarter is dropped
  const auto x = random_values<T>(kCount, 7);
  for (const int64_t first : {int64_t{0}, kDropoutRun * 3}) {
    std::vector<T> want = x;
    for (int64_t i = 0; i < kCount; ++i) {
      const int64_t e = first + i;
      const Philox4 random = philox(99, 7, static_cast<uint64_t>(e / 64 * 16 + e % 16));
      const bool kept = random.word[e % 64 / 16] >= draw.threshold;
      T& value = want[static_cast<size_t>(i)];
      round_to(value, kept ? 2 * wide(value) : 0);
    }
    on<Place>([&] {
      Array<Place, T> got(x);
      dropout<Place>(got.get(), first, kCount, draw);
      expect_same_bits(got.read(), want, "x");
      return hash_of(got.read());
    });
  }
}

}  // namespace
}  // namespace lockstep::core
