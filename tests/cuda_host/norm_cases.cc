// Norms on plain memory, in place as the trainer calls them, against fp64.
#include "core/kernels/norm_kernels.h"

#include "tests/cuda_host/case_values.h"

namespace lockstep::core {
namespace {

using Doubles = std::vector<double>;

constexpr int64_t kRows = 70;  // the sums of columns have two runs
constexpr float kEps = 1e-5f;
// On a GPU a norm has 32, 128, 256, 512 and 1,024 threads a row that is in registers, and 1,024 for
// a longer one (20,001). Rows of whole runs, and odd ones; some threads have nothing, or less than
// a run.
constexpr int64_t kDims[] = {37, 128, 1000, 1003, 2001, 4096, 7168, 20001};
// Large rows are few: their arithmetic is the same.
int64_t rows_of(int64_t dim) { return dim > 1000 ? 3 : kRows; }

struct Row {
  const double *x, *w, *b, *dy, *residual;
  int64_t dim;
};

// What a norm makes of a row, and of its gradient.
struct Expected {
  Doubles y, dx, dw, db;
  explicit Expected(int64_t dim) : dw(static_cast<size_t>(dim)), db(static_cast<size_t>(dim)) {}

  void rms(const Row& row) {
    add(row, 0.0, mean_of(row, [&](int64_t i) { return square(row, i); }));
  }
  void layer(const Row& row) {
    const double mean = mean_of(row, [&](int64_t i) { return row.x[i]; });
    const double variance =
        mean_of(row, [&](int64_t i) { return (row.x[i] - mean) * (row.x[i] - mean); });
    add(row, mean, variance, /*centred=*/true);
  }

 private:
  static double square(const Row& row, int64_t i) { return row.x[i] * row.x[i]; }
  template <typename F>
  static double mean_of(const Row& row, F term) {
    double sum = 0;
    for (int64_t i = 0; i < row.dim; ++i) sum += term(i);
    return sum / static_cast<double>(row.dim);
  }
  // With h = (x - mean) * s: y = h w + b; dx = residual + s (g - mean(g) - h mean(g h)), where the
  // mean of g is a centred norm's alone.
  void add(const Row& row, double mean, double squares, bool centred = false) {
    const double s = 1 / std::sqrt(squares + static_cast<double>(kEps));
    const auto h = [&](int64_t i) { return (row.x[i] - mean) * s; };
    const auto g = [&](int64_t i) { return row.dy[i] * row.w[i]; };
    const double mean_g = centred ? mean_of(row, g) : 0;
    const double mean_gh = mean_of(row, [&](int64_t i) { return g(i) * h(i); });
    for (int64_t i = 0; i < row.dim; ++i) {
      y.push_back(h(i) * row.w[i] + (centred ? row.b[i] : 0));
      dx.push_back(row.residual[i] + s * (g(i) - mean_g - h(i) * mean_gh));
      dw[static_cast<size_t>(i)] += row.dy[i] * h(i);
      db[static_cast<size_t>(i)] += row.dy[i];
    }
  }
};

template <typename T>
struct Inputs {
  explicit Inputs(int64_t row_count, int64_t width)
      : rows(row_count),
        dim(width),
        x(random_values<T>(rows * dim, 1)),
        w(random_values<T>(dim, 2)),
        b(random_values<T>(dim, 3)),
        dy(random_values<T>(rows * dim, 4)),
        residual(random_values<T>(rows * dim, 5)) {}
  Expected expected(void (Expected::*add)(const Row&)) const {
    Expected all(dim);
    const Doubles x64 = widened(x), w64 = widened(w), b64 = widened(b), dy64 = widened(dy);
    const Doubles residual64 = widened(residual);
    for (int64_t at = 0; at < rows * dim; at += dim)
      (all.*add)(Row{&x64[static_cast<size_t>(at)], w64.data(), b64.data(),
                     &dy64[static_cast<size_t>(at)], &residual64[static_cast<size_t>(at)], dim});
    return all;
  }
  // x + residual, in fp32 and rounded.
  std::vector<T> sums() const {
    std::vector<T> all(x.size());
    for (size_t i = 0; i < all.size(); ++i)
      round_to(all[i], static_cast<float>(wide(x[i])) + static_cast<float>(wide(residual[i])));
    return all;
  }
  int64_t rows, dim;
  std::vector<T> x, w, b, dy, residual;
};

template <typename C>
class NormCases : public testing::Test {};
TYPED_TEST_SUITE(NormCases, Columns, ColumnNames);

TYPED_TEST(NormCases, RmsNormIsThatOfFp64) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  for (const int64_t dim : kDims) {
    const Inputs<T> in(rows_of(dim), dim);
    const Expected want = in.expected(&Expected::rms);
    on<Place>([&] {
      Array<Place, T> x(in.x), w(in.w), y(in.x), dx(in.dy), residual(in.residual);
      Array<Place, float> scale(std::vector<float>(static_cast<size_t>(in.rows)));
      Array<Place, float> dw(std::vector<float>(static_cast<size_t>(dim)));
      rms_norm_forward<Place, T>(x.get(), nullptr, w.get(), y.get(), scale.get(), in.rows, 1, dim,
                                 dim, kEps);
      rms_norm_backward<Place>(dx.get(), x.get(), w.get(), scale.get(), residual.get(), dx.get(),
                               dw.get(), in.rows, 1, dim, dim);
      expect_close(y.read(), want.y, 1e-5, "y");
      expect_close(dx.read(), want.dx, 2e-5, "dx");
      expect_close(dw.read(), want.dw, 2e-4, "dw");
      return hash_of(y.read(), dx.read(), dw.read(), scale.read());
    });
  }
}

TYPED_TEST(NormCases, LayerNormIsThatOfFp64) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  for (const int64_t dim : kDims) {
    const Inputs<T> in(rows_of(dim), dim);
    const Expected want = in.expected(&Expected::layer);
    on<Place>([&] {
      Array<Place, T> x(in.x), w(in.w), b(in.b), y(in.x), dx(in.dy), residual(in.residual),
          alone(in.dy), none(std::vector<T>(in.dy.size()));
      Array<Place, float> stats(std::vector<float>(static_cast<size_t>(2 * in.rows)));
      const std::vector<float> zeros(static_cast<size_t>(dim));
      Array<Place, float> dw(zeros), db(zeros), dw_alone(zeros), db_alone(zeros);
      layer_norm_forward<Place, T>(x.get(), nullptr, w.get(), b.get(), y.get(), stats.get(),
                                   in.rows, dim, kEps);
      layer_norm_backward<Place>(dx.get(), x.get(), w.get(), stats.get(), residual.get(), dx.get(),
                                 dw.get(), db.get(), in.rows, dim);
      // Without a residual it is as with one of zeros.
      Array<Place, T> of_zeros(in.dy);
      layer_norm_backward<Place>(of_zeros.get(), x.get(), w.get(), stats.get(), none.get(),
                                 of_zeros.get(), dw_alone.get(), db_alone.get(), in.rows, dim);
      layer_norm_backward<Place, T>(alone.get(), x.get(), w.get(), stats.get(), nullptr,
                                    alone.get(), dw_alone.get(), db_alone.get(), in.rows, dim);
      EXPECT_EQ(hash_of(alone.read()), hash_of(of_zeros.read())) << dim;
      EXPECT_NE(hash_of(alone.read()), hash_of(dx.read())) << dim;
      expect_close(y.read(), want.y, 1e-5, "y");
      expect_close(dx.read(), want.dx, 2e-5, "dx");
      expect_close(dw.read(), want.dw, 2e-4, "dw");
      expect_close(db.read(), want.db, 2e-4, "db");
      return hash_of(y.read(), dx.read(), dw.read(), db.read(), stats.read());
    });
  }
}

// x becomes the rounded sum, and y has the bits of that sum's norm: also where no access of 16
// bytes may be. forward(in, x, residual, w, b, y, kept) is of a norm that keeps `kept_of_row`
// numbers of each row.
template <typename Place, typename T, typename Forward>
void expect_residual_first(size_t kept_of_row, Forward forward) {
  for (const int64_t dim : kDims) {
    const Inputs<T> in(3, dim);
    const std::vector<T> sums = in.sums();
    const std::vector<float> room(3 * kept_of_row);
    for (const size_t by : {0, 1})
      on<Place>([&] {
        Array<Place, T> x(in.x, by), residual(in.residual, by), w(in.w, by), b(in.b, by);
        Array<Place, T> y(in.dy, by), plain_x(sums, by), plain_y(in.dy, by);
        Array<Place, float> kept(room), plain_kept(room);
        const T* const none = nullptr;
        forward(in, x.get(), residual.get(), w.get(), b.get(), y.get(), kept.get());
        forward(in, plain_x.get(), none, w.get(), b.get(), plain_y.get(), plain_kept.get());
        expect_same_bits(x.read(), sums, "x");
        expect_same_bits(residual.read(), in.residual, "residual");
        expect_same_bits(y.read(), plain_y.read(), "y");
        expect_same_bits(kept.read(), plain_kept.read(), "kept");
        return hash_of(x.read(), y.read(), kept.read());
      });
  }
}

TYPED_TEST(NormCases, AResidualIsAddedAndRoundedBeforeRmsNorm) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  expect_residual_first<Place, T>(1, [](const Inputs<T>& in, T* x, const T* residual, const T* w,
                                        const T*, T* y, float* scale) {
    rms_norm_forward<Place>(x, residual, w, y, scale, in.rows, 1, in.dim, in.dim, kEps);
  });
}

TYPED_TEST(NormCases, AResidualIsAddedAndRoundedBeforeLayerNorm) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  expect_residual_first<Place, T>(2, [](const Inputs<T>& in, T* x, const T* residual, const T* w,
                                        const T* b, T* y, float* stats) {
    layer_norm_forward<Place>(x, residual, w, b, y, stats, in.rows, in.dim, kEps);
  });
}

// The bits of a norm whose weight has the offset in it, where that rounds nothing.
TYPED_TEST(NormCases, AnOffsetIsAddedToTheWeight) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr int64_t kFew = 5, kDim = 96;
  const auto x = random_values<T>(kFew * kDim, 1), dy = random_values<T>(kFew * kDim, 2);
  std::vector<T> w(kDim), more(kDim);
  for (size_t i = 0; i < kDim; ++i) {
    round_to(w[i], static_cast<double>(i % 9) / 16);
    round_to(more[i], 1 + static_cast<double>(i % 9) / 16);
  }
  on<Place>([&] {
    const std::vector<float> of_scale(kFew), of_w(kDim);
    Array<Place, T> in(x), w_less(w), w_more(more), y(x), y_more(x), dx(dy), dx_more(dy);
    Array<Place, float> scale(of_scale), dw(of_w), dw_more(of_w);
    rms_norm_forward<Place, T>(in.get(), nullptr, w_less.get(), y.get(), scale.get(), kFew, 1, kDim,
                               kDim, kEps, 1.0f);
    rms_norm_forward<Place, T>(in.get(), nullptr, w_more.get(), y_more.get(), scale.get(), kFew, 1,
                               kDim, kDim, kEps);
    rms_norm_backward<Place, T>(dx.get(), in.get(), w_less.get(), scale.get(), nullptr, dx.get(),
                                dw.get(), kFew, 1, kDim, kDim, 1.0f);
    rms_norm_backward<Place, T>(dx_more.get(), in.get(), w_more.get(), scale.get(), nullptr,
                                dx_more.get(), dw_more.get(), kFew, 1, kDim, kDim);
    expect_same_bits(y.read(), y_more.read(), "y");
    expect_same_bits(dx.read(), dx_more.read(), "dx");
    expect_same_bits(dw.read(), dw_more.read(), "dw");
    return hash_of(y.read(), dx.read(), dw.read());
  });
}

// Rows that lie where no access of 16 bytes may: the bits of the same rows where it may. Two blocks
// of the backward, the second with fewer rows.
TYPED_TEST(NormCases, AlignmentChangesNoBits) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  const Inputs<T> in(11, 1000);
  on<Place>([&] {
    std::vector<T> y[2], dx[2];
    std::vector<float> sums[2];
    for (const size_t by : {0, 1}) {
      Array<Place, T> x(in.x, by), w(in.w, by), out(in.x, by), d(in.dy, by);
      Array<Place, float> scale{std::vector<float>(11)}, sum{std::vector<float>(1000)};
      rms_norm_forward<Place, T>(x.get(), nullptr, w.get(), out.get(), scale.get(), in.rows, 1,
                                 in.dim, in.dim, kEps);
      rms_norm_backward<Place, T>(d.get(), x.get(), w.get(), scale.get(), x.get(), d.get(),
                                  sum.get(), in.rows, 1, in.dim, in.dim);
      y[by] = out.read(), dx[by] = d.read(), sums[by] = sum.read();
    }
    expect_same_bits(y[1], y[0], "y");
    expect_same_bits(dx[1], dx[0], "dx");
    expect_same_bits(sums[1], sums[0], "dw");
    return hash_of(y[0], dx[0], sums[0]);
  });
}

TYPED_TEST(NormCases, AlignmentChangesNoBitsOfALayerNorm) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  const Inputs<T> in(11, 1000);
  on<Place>([&] {
    std::vector<T> y[2], dx[2];
    std::vector<float> dw[2], db[2];
    for (const size_t by : {0, 1}) {
      Array<Place, T> x(in.x, by), w(in.w, by), b(in.b, by), out(in.x, by), d(in.dy, by);
      Array<Place, T> residual(in.residual, by);
      Array<Place, float> stats{std::vector<float>(22)};
      Array<Place, float> of_w{std::vector<float>(1000)}, of_b{std::vector<float>(1000)};
      layer_norm_forward<Place, T>(x.get(), nullptr, w.get(), b.get(), out.get(), stats.get(),
                                   in.rows, in.dim, kEps);
      layer_norm_backward<Place, T>(d.get(), x.get(), w.get(), stats.get(), residual.get(), d.get(),
                                    of_w.get(), of_b.get(), in.rows, in.dim);
      y[by] = out.read(), dx[by] = d.read(), dw[by] = of_w.read(), db[by] = of_b.read();
    }
    expect_same_bits(y[1], y[0], "y");
    expect_same_bits(dx[1], dx[0], "dx");
    expect_same_bits(dw[1], dw[0], "dw");
    expect_same_bits(db[1], db[0], "db");
    return hash_of(y[0], dx[0], dw[0], db[0]);
  });
}

// Heads that lie in wider rows: the bits of a plain norm of each, and nothing beside them changes.
TYPED_TEST(NormCases, HeadNormIsRmsNormOfEachHead) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr int64_t kHeads = 3, kDim = 64, kWidth = 256, kFirst = 32, kCount = 50;
  const std::vector<T> x = random_values<T>(kCount * kWidth, 6), w = random_values<T>(kDim, 7);
  const std::vector<T> dy = random_values<T>(kCount * kWidth, 8);
  const auto heads_of = [&](const std::vector<T>& rows) {
    std::vector<T> heads;
    for (int64_t r = 0; r < kCount; ++r)
      heads.insert(heads.end(), rows.begin() + r * kWidth + kFirst,
                   rows.begin() + r * kWidth + kFirst + kHeads * kDim);
    return heads;
  };
  const std::vector<float> of_scale(static_cast<size_t>(kCount * kHeads)), of_w(kDim);
  on<Place>([&] {
    Array<Place, T> x_all(x), w_all(w), y(x), dx(dy), x_heads(heads_of(x)), dx_heads(heads_of(dy));
    Array<Place, T> y_heads(heads_of(x));
    Array<Place, float> scale(of_scale), scale_heads(of_scale), dw(of_w), dw_heads(of_w);
    rms_norm_forward<Place, T>(x_all.get() + kFirst, nullptr, w_all.get(), y.get() + kFirst,
                               scale.get(), kCount, kHeads, kDim, kWidth, kEps);
    rms_norm_backward<Place, T>(dx.get() + kFirst, x_all.get() + kFirst, w_all.get(), scale.get(),
                                nullptr, dx.get() + kFirst, dw.get(), kCount, kHeads, kDim, kWidth);
    rms_norm_forward<Place, T>(x_heads.get(), nullptr, w_all.get(), y_heads.get(),
                               scale_heads.get(), kCount * kHeads, 1, kDim, kDim, kEps);
    rms_norm_backward<Place, T>(dx_heads.get(), x_heads.get(), w_all.get(), scale_heads.get(),
                                nullptr, dx_heads.get(), dw_heads.get(), kCount * kHeads, 1, kDim,
                                kDim);
    expect_same_bits(heads_of(y.read()), y_heads.read(), "y");
    expect_same_bits(heads_of(dx.read()), dx_heads.read(), "dx");
    expect_same_bits(dw.read(), dw_heads.read(), "dw");
    const std::vector<T> all = y.read();
    for (int64_t at = 0; at < kCount * kWidth; ++at)
      if (at % kWidth < kFirst || at % kWidth >= kFirst + kHeads * kDim) {
        EXPECT_EQ(wide(all[static_cast<size_t>(at)]), wide(x[static_cast<size_t>(at)])) << at;
      }
    return hash_of(all, dx.read(), dw.read());
  });
}

}  // namespace
}  // namespace lockstep::core
