// Softmax and the loss on plain memory, against fp64.
#include "core/kernels/softmax_kernels.h"

#include <algorithm>

#include "tests/cuda_host/case_values.h"

namespace lockstep::core {
namespace {

using Doubles = std::vector<double>;

template <typename C>
class SoftmaxCases : public testing::Test {};
TYPED_TEST_SUITE(SoftmaxCases, Columns, ColumnNames);

// The softmax of a stack of scores, and what becomes of dp; zero where a query does not see.
struct ExpectedSoftmax {
  Doubles p, scores_gradient;
  ExpectedSoftmax(const Doubles& scores, const Doubles& given_p, const Doubles& dp,
                  const ScoreBlock& b, double scale) {
    const auto rows = static_cast<int64_t>(scores.size()) / b.keys;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t query = b.first_query + row % b.rows / b.group;
      const auto at = [&](const Doubles& all, int64_t k) {
        return all[static_cast<size_t>(row * b.keys + k)];
      };
      const auto seen = [&](int64_t k) {
        const int64_t key = b.first_key + k;
        return key <= query && (b.window == 0 || query - key < b.window);
      };
      double sum = 0, dot = 0;
      for (int64_t k = 0; k < b.keys; ++k)
        if (seen(k)) {
          sum += std::exp(scale * at(scores, k));
          dot += at(given_p, k) * at(dp, k);
        }
      for (int64_t k = 0; k < b.keys; ++k) {
        p.push_back(seen(k) ? std::exp(scale * at(scores, k)) / sum : 0);
        scores_gradient.push_back(seen(k) ? scale * at(given_p, k) * (at(dp, k) - dot) : 0);
      }
    }
  }
};

// One warp, 256 and 512 threads a row on a GPU; with and without a window; keys that no query sees;
// rows that are moved by 16 bytes an access, and, of other lengths or addresses, not.
TYPED_TEST(SoftmaxCases, SoftmaxOfSeenIsThatOfFp64) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr int64_t kStacks = 2;
  constexpr float kScale = 0.37f;
  for (const ScoreBlock& block :
       {ScoreBlock{5, 24, 2, 3, 37, 0}, ScoreBlock{5, 24, 2, 3, 37, 7},
        ScoreBlock{400, 6, 3, 0, 403, 301}, ScoreBlock{400, 6, 3, 0, 408, 301},
        ScoreBlock{17000, 2, 1, 0, 17001, 0}}) {
    const int64_t n = kStacks * block.rows * block.keys;
    const auto scores = random_values<T>(n, 1, 3), p = random_values<T>(n, 2, 0.01);
    const auto dp = random_values<T>(n, 3);
    const ExpectedSoftmax want(widened(scores), widened(p), widened(dp), block,
                               static_cast<double>(kScale));
    on<Place>([&] {
      Array<Place, T> got(scores), given_p(p), gradient(dp);
      Array<Place, T> shifted(scores, 1), shifted_p(p, 1), shifted_gradient(dp, 1);
      masked_softmax<Place>(got.get(), kStacks, block, kScale);
      masked_softmax_backward<Place>(given_p.get(), gradient.get(), kStacks, block, kScale);
      masked_softmax<Place>(shifted.get(), kStacks, block, kScale);
      masked_softmax_backward<Place>(shifted_p.get(), shifted_gradient.get(), kStacks, block,
                                     kScale);
      expect_same_bits(shifted.read(), got.read(), "p, not aligned");
      expect_same_bits(shifted_gradient.read(), gradient.read(), "gradient, not aligned");
      expect_close(got.read(), want.p, 1e-6, "p");
      expect_close(gradient.read(), want.scores_gradient, 1e-6, "gradient");
      return hash_of(got.read(), gradient.read());
    });
  }
}

struct ExpectedLoss {
  Doubles losses, gradient;
  ExpectedLoss(const Doubles& logits, const std::vector<int64_t>& labels, const TokenLoss& loss,
               double dy) {
    const size_t vocab = logits.size() / labels.size();
    for (size_t row = 0; row < labels.size(); ++row) {
      const double* const x = &logits[row * vocab];
      const double top = *std::max_element(x, x + vocab);
      double sum = 0, mean = 0, e = loss.label_smoothing;
      for (size_t k = 0; k < vocab; ++k) {
        sum += std::exp(x[k] - top);
        mean += x[k] / static_cast<double>(vocab);
      }
      const bool valid = labels[row] >= 0;
      const auto label = static_cast<size_t>(valid ? labels[row] : 0);
      const double s = std::log(sum) + top;
      // e = 0 takes nothing of a mean that is not finite
      losses.push_back(valid ? s - (1 - e) * x[label] - (e > 0 ? e * mean : 0) + loss.z_loss * s * s
                             : 0);
      for (size_t k = 0; k < vocab; ++k) {
        const double d = (1 + 2 * loss.z_loss * s) * std::exp(x[k] - top) / sum -
                         e / static_cast<double>(vocab) - (k == label ? 1 - e : 0);
        gradient.push_back(valid ? dy * d : 0);
      }
    }
  }
};

// What the kernel makes of logits, with gradients and without.
template <typename Place, typename T>
void expect_cross_entropy(const std::vector<T>& logits, const std::vector<int64_t>& labels,
                          const TokenLoss& loss) {
  constexpr float kDy = 0.25f;
  const auto rows = static_cast<int64_t>(labels.size()),
             vocab = static_cast<int64_t>(logits.size()) / rows;
  const ExpectedLoss want(widened(logits), labels, loss, static_cast<double>(kDy));
  on<Place>([&] {
    Array<Place, T> got(logits), without(logits);
    Array<Place, int64_t> label(labels);
    const std::vector<double> nothing(labels.size());
    Array<Place, double> losses(nothing), losses_without(nothing);
    cross_entropy<Place>(got.get(), label.get(), rows, vocab, loss, kDy, true, losses.get());
    cross_entropy<Place>(without.get(), label.get(), rows, vocab, loss, kDy, false,
                         losses_without.get());
    expect_close(losses.read(), want.losses, 1e-5, "loss");
    expect_close(got.read(), want.gradient, 1e-6, "gradient");
    expect_same_bits(losses_without.read(), losses.read(), "losses without gradients");
    return hash_of(got.read(), losses.read());
  });
}

// Vocabularies of one warp, 256 and 512 threads a row on a GPU, Llama 3's among them, one with
// fewer words than threads, odd tails. The labels are the first and the last word, and some that
// are other threads'.
TYPED_TEST(SoftmaxCases, CrossEntropyIsThatOfFp64AndSkipsIgnoredRows) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  for (const int64_t vocab : {20, 200, 5000, 16391, 128256})
    for (const double smoothing : {0.0, 0.1}) {
      std::vector<int64_t> labels{3, -100, vocab - 1, 0};
      if (vocab > 100000) labels = {77777, -100};
      const auto rows = static_cast<int64_t>(labels.size());
      expect_cross_entropy<Place>(random_values<T>(rows * vocab, 4, 3), labels,
                                  {smoothing / 100, smoothing});
    }
}

// Far above and below what an exponential can be of; all alike; ever larger ones and ever smaller
// ones, so that a thread's largest logit is its last or its first.
TYPED_TEST(SoftmaxCases, CrossEntropyOfVeryLargeAndVerySmallLogits) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  for (const int64_t vocab : {37, 300, 16386})
    for (const double smoothing : {0.0, 0.1}) {
      const auto of_rows = [&](const std::vector<double>& rows) {
        std::vector<T> logits(rows.size());
        for (size_t i = 0; i < rows.size(); ++i) round_to(logits[i], rows[i]);
        return logits;
      };
      std::vector<double> rows;
      for (const double offset : {3e4, -3e4, 0.0, 20.0, -20.0})
        for (int64_t k = 0; k < vocab; ++k) {
          const double place = static_cast<double>(k) / static_cast<double>(vocab);
          rows.push_back(std::abs(offset) == 20 ? offset * place
                                                : offset + (offset == 0 ? 0 : 8 * place));
        }
      expect_cross_entropy<Place>(of_rows(rows), {1, vocab - 1, -100, vocab - 2, 3},
                                  {0, smoothing});
    }
}

// Logits of -inf get no gradient: some of each thread's, all of a thread's and of a warp's, all but
// the label's.
TYPED_TEST(SoftmaxCases, CrossEntropyOfMinusInfinityLeavesThoseWordsOut) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  for (const int64_t vocab : {37, 300, 16386}) {
    constexpr int64_t kRows = 5;
    const std::vector<int64_t> labels{vocab - 1, 5, 3, vocab - 2, 0};
    auto logits = random_values<T>(kRows * vocab, 6, 3);
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t k = 0; k < vocab; ++k) {
        const bool gone[kRows] = {k % 3 == 1, k % 32 != 5, k / 32 % 2 == 1, k < vocab - 2, k != 0};
        if (gone[row] && k != labels[static_cast<size_t>(row)])
          round_to(logits[static_cast<size_t>(row * vocab + k)], -INFINITY);
      }
    expect_cross_entropy<Place>(logits, labels, {1e-3, 0});
  }
}

// What is not a number comes through, wherever it is; so does a row of nothing but -inf.
TYPED_TEST(SoftmaxCases, CrossEntropyOfWhatIsNoNumberIsNone) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  for (const int64_t vocab : {37, 300, 16386})
    for (const int64_t place : {int64_t{0}, int64_t{5}, vocab - 1, vocab}) {
      auto logits = random_values<T>(vocab, 7, 3);
      if (place < vocab) {
        round_to(logits[static_cast<size_t>(place)], std::nan(""));
      } else if (std::is_same_v<Place, OnCuda>) {  // a CPU's exponential is never 0
        for (T& logit : logits) round_to(logit, -INFINITY);
      } else {
        continue;
      }
      on<Place>([&] {
        Array<Place, T> got(logits);
        Array<Place, int64_t> label({1});
        Array<Place, double> losses(std::vector<double>{0});
        cross_entropy<Place>(got.get(), label.get(), 1, vocab, {}, 1.0f, true, losses.get());
        EXPECT_TRUE(std::isnan(losses.read()[0])) << vocab << " " << place;
        EXPECT_TRUE(std::isnan(wide(got.read()[0]))) << vocab << " " << place;
        return uint64_t{0};
      });
    }
}

}  // namespace
}  // namespace lockstep::core
