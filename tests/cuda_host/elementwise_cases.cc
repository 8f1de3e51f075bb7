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

// Rows of no whole number of runs; of whole runs, in one block's part of a row and in several; and
// the same where no access of 16 bytes is aligned.
struct GatedCase {
  int64_t rows, dim;
  size_t shift;
};
constexpr GatedCase kGatedCases[] = {{65, 33, 0}, {65, 40, 0}, {65, 40, 3}, {3, 1048, 0}};

double root_64() { return std::sqrt(8 / std::acos(-1.0)); }  // 2 sqrt(2 / pi)
double gelu_share64(double x) { return sigmoid64(root_64() * (x + 0.044715 * x * x * x)); }
double gelu_slope64(double x) {
  const double s = gelu_share64(x);
  return s + x * s * (1 - s) * root_64() * (1 + 3 * 0.044715 * x * x);
}
double silu_slope64(double x) {
  const double s = sigmoid64(x);
  return s * (1 + x * (1 - s));
}

// y = gate * share(gate) * up, and its gradient. Returns a hash of both.
template <typename C>
uint64_t gated_is_that_of_fp64(const GatedCase& c, double scale, double (*share)(double),
                               double (*slope)(double), auto forward, auto backward) {
  using Place = typename C::Place;
  using T = typename C::T;
  auto gate_up = random_values<T>(c.rows * 2 * c.dim, 1, scale);
  const auto dy = random_values<T>(c.rows * c.dim, 2);
  round_to(gate_up[0], -10 * scale);  // saturates without NaN
  round_to(gate_up[1], 10 * scale);
  Doubles y, gradient(gate_up.size());
  const auto dim = static_cast<size_t>(c.dim);
  for (size_t i = 0; i < dy.size(); ++i) {
    const size_t at = i / dim * 2 * dim + i % dim;
    const double g = wide(gate_up[at]), u = wide(gate_up[at + dim]), d = wide(dy[i]);
    y.push_back(g * share(g) * u);
    gradient[at] = d * u * slope(g);
    gradient[at + dim] = d * g * share(g);
  }
  uint64_t hash = 0;
  on<Place>([&] {
    Array<Place, T> given(gate_up, c.shift), out(dy, c.shift), d(dy, c.shift);
    forward(given.get(), out.get(), c.rows, c.dim);
    backward(d.get(), given.get(), c.rows, c.dim);
    expect_close(out.read(), y, 2e-5, "y");
    expect_close(given.read(), gradient, 2e-5, "gradient");
    return hash = hash_of(out.read(), given.read());
  });
  return hash;
}

void gated_cases_are_those_of_fp64(auto case_is) {
  std::vector<uint64_t> hashes;
  for (const GatedCase& c : kGatedCases) hashes.push_back(case_is(c));
  EXPECT_EQ(hashes[1], hashes[2]) << "other bits where nothing is aligned";
}

TYPED_TEST(ElementwiseCases, SwigluIsThatOfFp64) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  gated_cases_are_those_of_fp64([](const GatedCase& c) {
    return gated_is_that_of_fp64<TypeParam>(c, 4, sigmoid64, silu_slope64, swiglu_forward<Place, T>,
                                            swiglu_backward<Place, T>);
  });
}

TYPED_TEST(ElementwiseCases, GegluIsThatOfFp64) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  gated_cases_are_those_of_fp64([](const GatedCase& c) {
    return gated_is_that_of_fp64<TypeParam>(c, 3, gelu_share64, gelu_slope64,
                                            geglu_forward<Place, T>, geglu_backward<Place, T>);
  });
}

// Elements behind the last whole run, and accesses that none of 16 bytes is aligned for.
constexpr size_t kOffBy[] = {0, 1};

TYPED_TEST(ElementwiseCases, SoftCapIsThatOfFp64) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr int64_t kCount = 1001;
  auto x = random_values<T>(kCount, 3, 6);
  const auto dy = random_values<T>(kCount, 4);
  round_to(x[0], -4000);
  Doubles y, gradient;
  for (size_t i = 0; i < kCount; ++i) y.push_back(5 * std::tanh(0.5 * wide(x[i]) / 5));
  for (const size_t shift : kOffBy)
    on<Place>([&] {
      Array<Place, T> out(x, shift), d(dy, shift);
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
  const auto x = random_values<T>(kCount, 3, 2), dy = random_values<T>(kCount, 4);
  Doubles y, gradient;
  for (size_t i = 0; i < kCount; ++i) {
    const double v = wide(x[i]);
    y.push_back(v * gelu_share64(v));
    gradient.push_back(wide(dy[i]) * gelu_slope64(v));
  }
  for (const size_t shift : kOffBy)
    on<Place>([&] {
      Array<Place, T> given(x, shift), out(dy, shift), d(dy, shift);
      gelu_forward<Place>(given.get(), out.get(), kCount);
      gelu_backward<Place>(d.get(), given.get(), kCount);
      expect_close(out.read(), y, 2e-6, "y");
      expect_close(given.read(), gradient, 1e-5, "gradient");
      return hash_of(out.read(), given.read());
    });
}

// Heads inside wider rows; positions repeat and are out of order; what is beside them stays.
template <typename C>
void pairs_turn(int64_t heads, int64_t head_dim, int64_t width, size_t shift, double direction) {
  using Place = typename C::Place;
  using T = typename C::T;
  constexpr int64_t kRows = 32, kSeqLen = 16;
  const int64_t half = head_dim / 2;
  const auto x = random_values<T>(kRows * width, 5);
  const Doubles angles = widened(random_values<float>(kSeqLen * half, 6));
  std::vector<float> cos, sin;
  for (const double angle : angles) {
    cos.push_back(static_cast<float>(std::cos(angle)));
    sin.push_back(static_cast<float>(std::sin(angle)));
  }
  std::vector<int64_t> positions;
  for (int64_t r = 0; r < kRows; ++r) positions.push_back(r * 5 % kSeqLen);
  Doubles want = widened(x);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t i = 0; i < heads * half; ++i) {
      const auto a = static_cast<size_t>(r * width + i / half * head_dim + i % half);
      const size_t b = a + static_cast<size_t>(half);
      const auto at = static_cast<size_t>(positions[static_cast<size_t>(r)] * half + i % half);
      const double c = wide(cos[at]), s = wide(sin[at]) * direction;
      want[a] = wide(x[a]) * c - wide(x[b]) * s;
      want[b] = wide(x[b]) * c + wide(x[a]) * s;
    }
  on<Place>([&] {
    Array<Place, T> turned(x, shift);
    Array<Place, float> cosines(cos), sines(sin);
    Array<Place, int64_t> places(positions);
    rotate_heads<Place>(turned.get(), cosines.get(), sines.get(), places.get(), kRows, heads,
                        head_dim, width, static_cast<float>(direction));
    expect_close(turned.read(), want, 1e-6, "turned");
    return hash_of(turned.read());
  });
}

// Heads of whole runs, in one block's part of a row and in several; then rows, heads and addresses
// that no run of pairs is aligned in.
TYPED_TEST(ElementwiseCases, RotaryTurnsPairsByTheAngleOfTheirPosition) {
  for (const double direction : {1.0, -1.0}) {
    pairs_turn<TypeParam>(3, 8, 32, 0, direction);
    pairs_turn<TypeParam>(5, 256, 1288, 0, direction);
    pairs_turn<TypeParam>(3, 8, 29, 0, direction);
    pairs_turn<TypeParam>(3, 6, 32, 0, direction);
    pairs_turn<TypeParam>(3, 8, 32, 1, direction);
  }
}

// Which elements are kept is a function of (key, counter, place), also from the middle of a tensor.
TYPED_TEST(ElementwiseCases, DropoutDrawsByCounter) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr int64_t kCount = 1637;                         // ends inside a run
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
      Array<Place, T> got(x), shifted(x, 3);  // which no access of 16 bytes may move
      dropout<Place>(got.get(), first, kCount, draw);
      dropout<Place>(shifted.get(), first, kCount, draw);
      expect_same_bits(got.read(), want, "x");
      expect_same_bits(shifted.read(), want, "x, not aligned");
      return hash_of(got.read());
    });
  }
}

}  // namespace
}  // namespace lockstep::core
