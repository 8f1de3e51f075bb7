// What gives the CPU's bits on every device: AdamW, Muon's single elements, tile norms, elementwise
// sums, embedding gradients; and sums of columns, which have a fixed order of their own.
#include <cmath>
#include <deque>
#include <numeric>

#include "core/kernels/adamw_kernels.h"
#include "core/kernels/add_kernels.h"
#include "core/kernels/digest_kernels.h"
#include "core/kernels/muon_kernels.h"
#include "layout/model_spec.h"
#include "tests/cuda_host/case_values.h"

namespace lockstep::core {
namespace {

using Floats = std::vector<float>;
constexpr int64_t kTile = layout::kTileElements;
// Accesses of 16 bytes are aligned, or are not.
constexpr size_t kShifts[] = {0, 1};

// Parameters of an update, one behind the other in each array.
template <typename Moment>
struct AdamWCase {
  std::vector<int64_t> lengths;
  int64_t steps;
  Floats grad, master;
  std::vector<Moment> m, v;

  explicit AdamWCase(std::vector<int64_t> elements, int64_t count = 5)
      : lengths(std::move(elements)), steps(count) {
    const int64_t n = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    grad = random_values<float>(n, 1, 1e-3);
    master = random_values<float>(n, 2);
    m = random_values<Moment>(n, 3, 1e-3);
    v = random_values<Moment>(n, 4, 1e-3);
    for (Moment& value : v) round_to(value, wide(value) * wide(value));
  }

  // Weights, moments and copy after the steps. Every other parameter decays in every other step;
  // each moment in bf16 is rounded by bits of its own.
  template <typename Place>
  auto after_steps(size_t shift, bool copied) const {
    Array<Place, float> g(grad, shift), w(master, shift);
    Array<Place, Moment> m1(m, shift), m2(v, shift);
    Array<Place, Bf16> copy(std::vector<Bf16>(master.size()), shift);
    for (int64_t t = 1; t <= steps; ++t) {
      std::vector<AdamWRun<Moment>> runs;
      int64_t at = 0;
      for (const int64_t n : lengths) {
        const auto i = static_cast<int64_t>(runs.size());
        runs.push_back({g.get() + at,
                        w.get() + at,
                        m1.get() + at,
                        m2.get() + at,
                        copied ? copy.get() + at : nullptr,
                        n,
                        {static_cast<uint64_t>(77 + i), i * kTile},
                        (t + i) % 2 == 0});
        at += n;
      }
      adamw_update<Place>(AdamWStep::create(1e-3, 0.9, 0.95, 1e-8, 0.1, 0.7, t),
                          std::span<const AdamWRun<Moment>>(runs));
    }
    return std::tuple(w.read(), m1.read(), m2.read(), copy.read());
  }

  void expect_the_cpus_bits(bool copied) const {
    const auto want = after_steps<OnCpu>(0, copied);
    std::vector<Bf16> copy(master.size());
    for (size_t i = 0; copied && i < copy.size(); ++i)
      round_to(copy[i], wide(std::get<0>(want)[i]));
    expect_same_bits(std::get<3>(want), copy, "the copy on the CPU");
    for (const size_t shift : kShifts)
      on<OnCuda>([&] {
        const auto got = after_steps<OnCuda>(shift, copied);
        expect_same_bits(std::get<0>(got), std::get<0>(want), "master");
        expect_same_bits(std::get<1>(got), std::get<1>(want), "m");
        expect_same_bits(std::get<2>(got), std::get<2>(want), "v");
        expect_same_bits(std::get<3>(got), copy, "copy");
        return hash_of(std::get<0>(got), std::get<1>(got), std::get<2>(got), std::get<3>(got));
      });
  }
};

// Runs of several tiles, of none and of parts of one.
const std::vector<int64_t> kLengths{2 * kTile + 77, 0, 1, kTile, 63, 65, kTile - 1};

TEST(ExactSums, AdamWGivesTheCpusBits) {
  AdamWCase<float> update(kLengths);
  for (size_t i = 0; i < 64; ++i) update.grad[i] = 0;
  for (size_t i = 0; i < 128; ++i) update.v[i] *= 1e-36f;  // subnormals stay
  for (const bool copied : {false, true}) update.expect_the_cpus_bits(copied);
}

TEST(ExactSums, AdamWWithMomentsInBf16GivesTheCpusBits) {
  AdamWCase<Bf16> update(kLengths);
  update.v[5].bits = 0x7f7f;  // the largest; and what is not finite
  update.v[6].bits = 0x7f80;
  update.v[7].bits = 0x7fc1;
  for (const bool copied : {false, true}) update.expect_the_cpus_bits(copied);
}

TEST(ExactSums, AdamWOfMoreRunsThanALaunchHas) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 360; ++i) lengths.push_back(1 + i % 3);
  AdamWCase<float>(lengths, 1).expect_the_cpus_bits(true);
  AdamWCase<Bf16>(lengths, 1).expect_the_cpus_bits(true);
}

TEST(ExactSums, MuonGivesTheCpusBits) {
  constexpr int64_t kCount = 2 * kTile + 77;
  const Floats grad = random_values<float>(kCount, 1, 1e-3), m = random_values<float>(kCount, 2);
  const Floats master = random_values<float>(kCount, 3);
  const std::vector<Bf16> nothing(kCount);
  const auto three_steps = [&](auto place, double momentum, size_t shift) {
    using Place = typename decltype(place)::type;
    Array<Place, float> g(grad, shift), w(master, shift), m1(m, shift);
    Array<Place, Bf16> direction(nothing, shift), copy(nothing, shift);
    const MuonStep step = MuonStep::create(1e-2, momentum, 0.1, 0.7, 48, 200);
    for (int t = 0; t < 3; ++t) {
      muon_momentum<Place>(step, g.get(), m1.get(), direction.get(), kCount);
      muon_update<Place>(step, direction.get(), w.get(), t == 1 ? copy.get() : nullptr, kCount);
    }
    muon_momentum<Place>(step, g.get(), m1.get(), nullptr, kCount);
    return std::tuple(w.read(), m1.read(), direction.read(), copy.read());
  };
  for (const auto& [momentum, shift] : {std::pair(0.3, size_t{1}), {0.95, 0}}) {
    const auto [w, m1, direction, copy] = three_steps(std::type_identity<OnCpu>(), momentum, 0);
    on<OnCuda>([&, &w = w, &m1 = m1, &direction = direction, &copy = copy, momentum = momentum,
                shift = shift] {
      const auto [got_w, got_m, got_direction, got_copy] =
          three_steps(std::type_identity<OnCuda>(), momentum, shift);
      expect_same_bits(got_w, w, "master");
      expect_same_bits(got_m, m1, "momentum");
      expect_same_bits(got_direction, direction, "direction");
      expect_same_bits(got_copy, copy, "copy");
      return hash_of(got_w, got_m, got_direction, got_copy);
    });
  }
}

TEST(ExactSums, TileNormsAreTheCpusBits) {
  constexpr int64_t kTiles = 37;  // not a whole number of blocks
  const Floats grad = random_values<float>(kTiles * kTile, 5);
  const std::vector<double> nothing(kTiles);
  Array<OnCpu, float> cpu_grad(grad);
  Array<OnCpu, double> cpu_sums(nothing);
  scale_and_square_tiles<OnCpu>(cpu_grad.get(), 0.37f, kTiles, cpu_sums.get());
  on<OnCuda>([&] {
    Array<OnCuda, float> got(grad);
    Array<OnCuda, double> sums(nothing);
    scale_and_square_tiles<OnCuda>(got.get(), 0.37f, kTiles, sums.get());
    expect_same_bits(got.read(), cpu_grad.read(), "grad");
    expect_same_bits(sums.read(), cpu_sums.read(), "sums");
    return hash_of(got.read(), sums.read());
  });
}

// Level after level, as the tree is defined.
double sum_by_levels(std::vector<double> leaves) {
  for (; leaves.size() > 1; leaves.resize(leaves.size() / 2))
    for (size_t i = 0; i < leaves.size() / 2; ++i) leaves[i] = leaves[2 * i] + leaves[2 * i + 1];
  return leaves[0];
}

// Subtrees one behind the other, from a place on that is aligned to nothing.
void expect_sums_by_levels(const std::vector<int64_t>& lengths) {
  constexpr int64_t kFirst = 3;
  std::vector<layout::SlotRun> runs{{kFirst, lengths[0]}};
  for (size_t i = 1; i < lengths.size(); ++i) runs.push_back({runs.back().end(), lengths[i]});
  std::vector<double> leaves = widened(random_values<float>(runs.back().end(), 12));
  for (double& leaf : leaves) leaf = std::exp(leaf);  // so that the order of additions shows
  std::vector<double> want;
  for (const layout::SlotRun& run : runs)
    want.push_back(sum_by_levels({leaves.begin() + run.first, leaves.begin() + run.end()}));
  const auto expect_on = [&](auto place) {
    using Place = typename decltype(place)::type;
    on<Place>([&] {
      Array<Place, double> squares(leaves), sums(std::vector<double>(want.size()));
      sum_subtrees<Place>(squares.get(), runs, sums.get());
      expect_same_bits(sums.read(), want, "sums");
      return hash_of(sums.read());
    });
  };
  expect_on(std::type_identity<OnCpu>());
  expect_on(std::type_identity<OnCuda>());
}

// Of a part of a thread's leaves and of a block's; of several blocks, and of several blocks of
// their sums; and more of them than a launch has.
TEST(ExactSums, SubtreesOfTilesAreAddedInTheTreesOrder) {
  expect_sums_by_levels({1, 2, 8, 16, 32, 256, 512, 4, 1024, 8192, 1, 1 << 19, 64});
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 1030; ++i) lengths.push_back(1 << i % 3);
  lengths.back() = 1024;
  expect_sums_by_levels(lengths);
}

// Runs of several tiles and of none, every length that XXH3 treats in a way of its own, and more
// runs than one launch has.
template <typename T>
void expect_digests_of_xxh3(const std::vector<int64_t>& lengths) {
  std::vector<DigestRun> runs;
  int64_t first = kTile;
  for (const int64_t length : lengths) {
    runs.push_back({first, length, mix64(runs.size() + 1)});
    first += (length + kTile - 1) / kTile * kTile;
  }
  const auto values = random_values<T>(first, 8);
  std::vector<uint64_t> want;
  for (const DigestRun& run : runs)
    want.push_back(
        digest_of_tiles(std::as_bytes(std::span(values).subspan(static_cast<size_t>(run.first),
                                                                static_cast<size_t>(run.length))),
                        sizeof(T), run.seed));
  on<OnCuda>([&] {
    Array<OnCuda, T> elements(values);
    Array<OnCuda, uint64_t> sums(std::vector<uint64_t>(want.size()));
    digest_runs_on_cuda(reinterpret_cast<const std::byte*>(elements.get()), sizeof(T), runs,
                        sums.get());
    EXPECT_EQ(sums.read(), want);
    return hash_of(sums.read());
  });
}

TEST(ExactSums, DigestsAreTheCpusBits) {
  expect_digests_of_xxh3<float>({3 * kTile, 0, 2 * kTile + 1, kTile - 1, 5});
  expect_digests_of_xxh3<Bf16>({3 * kTile, 0, 2 * kTile + 1, kTile - 1, 5});
  std::vector<int64_t> all;
  for (int64_t length = 1; length <= 140; ++length) all.push_back(length);
  for (const int64_t length : {255, 256, 257, 271, 272, 273, 511, 512, 513, 527, 1000})
    all.push_back(length);
  expect_digests_of_xxh3<float>(all);
  expect_digests_of_xxh3<Bf16>(all);
}

template <typename C>
class SumCases : public testing::Test {};
TYPED_TEST_SUITE(SumCases, Columns, ColumnNames);

TYPED_TEST(SumCases, NarrowingRoundsOnce) {
  using Place = typename TypeParam::Place;
  constexpr int64_t kCount = 10007;
  const Floats values = random_values<float>(kCount, 6);
  std::vector<Bf16> want(kCount);
  for (size_t i = 0; i < kCount; ++i) round_to(want[i], wide(values[i]));
  for (const size_t shift : kShifts)
    on<Place>([&] {
      Array<Place, float> from(values, shift);
      Array<Place, Bf16> narrowed(std::vector<Bf16>(kCount), shift);
      narrow<Place>(narrowed.get(), from.get(), kCount);
      expect_same_bits(narrowed.read(), want, "narrow");
      return hash_of(narrowed.read());
    });
}

// The parts, two at a time, and then the sums, last first: as kernels of one addition each.
template <typename T>
float added_in_order(const std::vector<std::vector<T>>& parts, const std::vector<Floats>& sums,
                     size_t i) {
  Floats level;
  for (const std::vector<T>& part : parts) level.push_back(static_cast<float>(wide(part[i])));
  for (size_t n = level.size(); n > 1; n /= 2)
    for (size_t k = 0; k < n / 2; ++k)
      level[k] = static_cast<float>(wide(level[2 * k]) + wide(level[2 * k + 1]));
  float total = level[0];
  for (size_t s = sums.size(); s-- > 0;) total = static_cast<float>(wide(sums[s][i]) + wide(total));
  return total;
}

TYPED_TEST(SumCases, AFoldIsItsPairs) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  for (const int parts : {1, 2, 4, 8})
    for (const int sums : {0, 1, 3, layout::kMostFoldSums})
      for (const int64_t count : {3, 4, 2051}) {
        std::vector<std::vector<T>> part;
        std::vector<Floats> sum;
        for (int k = 0; k < parts; ++k)
          part.push_back(random_values<T>(count, static_cast<uint64_t>(20 + k)));
        for (int s = 0; s < sums; ++s)
          sum.push_back(random_values<float>(count, static_cast<uint64_t>(40 + s)));
        Floats want;
        for (size_t i = 0; i < static_cast<size_t>(count); ++i)
          want.push_back(added_in_order(part, sum, i));
        for (const size_t shift : kShifts)
          on<Place>([&] {
            std::deque<Array<Place, T>> from;
            std::deque<Array<Place, float>> with;
            FoldTerms<T> terms;
            for (const auto& one : part) terms.add_part(from.emplace_back(one, shift).get());
            for (const auto& one : sum) terms.add_sum(with.emplace_back(one).get());
            Array<Place, float> fresh(Floats(static_cast<size_t>(count)));
            Array<Place, float>& got = sums == 0 ? fresh : with.front();
            fold<Place>(got.get(), terms, count);
            expect_same_bits(got.read(), want, "sum");
            return hash_of(got.read());
          });
      }
}

// Columns in the middle of wider rows; as many rows as one run, several, and the most runs.
TYPED_TEST(SumCases, ColumnsAreThoseOfFp64) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr int64_t kWidth = 11, kFirst = 2, kColumns = 7;
  for (const int64_t rows : {50, 1000, 20000}) {
    const auto dy = random_values<T>(rows * kWidth, 8);
    const Floats before = random_values<float>(kColumns, 9);
    std::vector<double> want = widened(before);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < kColumns; ++c)
        want[static_cast<size_t>(c)] += wide(dy[static_cast<size_t>(r * kWidth + kFirst + c)]);
    on<Place>([&] {
      Array<Place, float> sum(before);
      Array<Place, T> given(dy);
      add_columns<Place>(sum.get(), given.get() + kFirst, rows, kColumns, kWidth);
      expect_close(sum.read(), want, 1e-2, "sum");
      return hash_of(sum.read());
    });
  }
}

// The CPU adds rows in row order: so does a device. Tokens of none of the rows, of one, of as many
// as double steps find just so, and of most: of more than a block reads the places of at once.
template <typename T>
void rows_are_added_in_order(int64_t dim, int64_t rows) {
  constexpr int64_t kTokens = 11;
  const auto dy = random_values<T>(rows * dim, 10);
  const Floats before = random_values<float>(kTokens * dim, 11);
  const auto token_of = [](int64_t row) -> int64_t {
    if (row == 17) return 1;
    if (row % 3 != 0 || row > 96) return row % 2 == 0 ? 4 : 6;
    return row < 48 ? 7 : row < 51 ? 8 : 10;
  };
  std::vector<int64_t> sorted, order;
  for (int64_t token = 0; token < kTokens; ++token)
    for (int64_t r = 0; r < rows; ++r)
      if (token_of(r) == token) {
        sorted.push_back(token);
        order.push_back(r);
      }
  Floats want = before;
  for (size_t i = 0; i < sorted.size(); ++i)
    for (int64_t c = 0; c < dim; ++c)
      want[static_cast<size_t>(sorted[i] * dim + c)] +=
          static_cast<float>(wide(dy[static_cast<size_t>(order[i] * dim + c)]));
  on<OnCuda>([&] {
    Array<OnCuda, float> sum(before);
    Array<OnCuda, T> given(dy);
    Array<OnCuda, int64_t> tokens(sorted), places(order);
    add_rows_by_token(sum.get(), given.get(), tokens.get(), places.get(), rows, dim);
    expect_same_bits(sum.read(), want, "sum");
    return hash_of(sum.read());
  });
}

// Columns by 16 bytes and one by one; more of them than a block has.
TEST(ExactSums, EmbeddingRowsAreAddedInRowOrder) {
  for (const int64_t dim : {4, 5, 65, 300}) {
    rows_are_added_in_order<float>(dim, dim > 100 ? 96 : 700);
    rows_are_added_in_order<Bf16>(dim, dim > 100 ? 96 : 700);
  }
}

}  // namespace
}  // namespace lockstep::core
