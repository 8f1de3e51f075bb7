// Initial values: the same bits in every column as one after the other by base/elementary.h.
#include "core/kernels/initial_kernels.h"

#include <numbers>

#include "tests/cuda_host/case_values.h"

namespace lockstep::core {
namespace {

float value_of(const InitialDraw& draw, int64_t element) {
  const Philox4 random = philox(draw.key, 0, static_cast<uint64_t>(element / 4));
  const auto k = static_cast<size_t>(element % 4), pair = k / 2 * 2;
  if (draw.uniform) return static_cast<float>(draw.scale * (random.word[k] / 2147483648.0 - 1.0));
  const auto unit = [&](size_t word) { return (random.word[word] + 1.0) / 4294967296.0; };
  const double radius = std::sqrt(-2.0 * elementary::log(unit(pair)));
  const elementary::SinCos angle = elementary::sin_cos(2.0 * std::numbers::pi * unit(pair + 1));
  return static_cast<float>(draw.scale * (radius * (k % 2 == 0 ? angle.cos : angle.sin)));
}

template <typename C>
class InitialCases : public testing::Test {};
using Places = testing::Types<Column<OnCpu, float>, Column<OnCuda, float>>;
TYPED_TEST_SUITE(InitialCases, Places, ColumnNames);

// From tiles on and from the middle of what one counter draws, to where accesses of 16 bytes are
// aligned and not; elements behind 2^32; one alone, and more than a block has.
TYPED_TEST(InitialCases, DependOnTheKeyAndTheElementAlone) {
  using Place = typename TypeParam::Place;
  struct Cut {
    int64_t first, n;
    size_t shift;
  };
  for (const bool uniform : {false, true})
    for (const Cut& cut :
         {Cut{0, 4096, 0}, Cut{4096, 1537, 0}, Cut{4096, 1536, 1}, Cut{4097, 700, 0},
          Cut{4099, 1, 0}, Cut{(int64_t{1} << 34) + 2, 77, 0}}) {
      const InitialDraw draw{0x123456789abcdef, cut.first, 0.02, uniform};
      std::vector<float> want;
      for (int64_t i = 0; i < cut.n; ++i) want.push_back(value_of(draw, cut.first + i));
      on<Place>([&] {
        Array<Place, float> got(std::vector<float>(want.size()), cut.shift);
        draw_initial<Place>(draw, got.get(), cut.n);
        expect_same_bits(got.read(), want, "drawn");
        return hash_of(got.read());
      });
    }
}

}  // namespace
}  // namespace lockstep::core
