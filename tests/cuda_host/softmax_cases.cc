// Softmax and the loss on plain memory, against fp64.
#include "core/kernels/softmax_kernels.h"

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

// One warp, 256 and 1,024 threads a row; with and without a window; keys that no query sees.
TYPED_TEST(SoftmaxCases, SoftmaxOfSeenIsThatOfFp64) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr int64_t kStacks = 2;
  constexpr float kScale = 0.37f;
  for (const ScoreBlock& block :
       {ScoreBlock{5, 24, 2, 3, 37, 0}, ScoreBlock{5, 24, 2, 3, 37, 7},
        ScoreBlock{400, 6, 3, 0, 403, 301}, ScoreBlock{17000, 2, 1, 0, 17001, 0}}) {
    const int64_t n = kStacks * block.rows * block.keys;
    const auto scores = random_values<T>(n, 1, 3), p = random_values<T>(n, 2, 0.01);
    const auto dp = random_values<T>(n, 3);
    const ExpectedSoftmax want(widened(scores), widened(p), widened(dp), block,
                               static_cast<double>(kScale));
    on<Place>([&] {
      Array<Place, T> got(scores), given_p(p), gradient(dp);
      masked_softmax<Place>(got.get(), kStacks, block, kScale);
      masked_softmax_backward<Place>(given_p.get(), gradient.get(), kStacks, block, kScale);
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
      double sum = 0, mean = 0, e = loss.label_smoothing;
      for (size_t k = 0; k < vocab; ++k) {
        sum += std::exp(x[k]);
        mean += x[k] / static_cast<double>(vocab);
      }
      const bool valid = labels[row] >= 0;
      const auto label = static_cast<size_t>(valid ? labels[row] : 0);
      const double s = std::log(sum);
      losses.push_back(valid ? s - (1 - e) * x[label] - e * mean + loss.z_loss * s * s : 0);
      for (size_t k = 0; k < vocab; ++k) {
        const double d = (1 + 2 * loss.z_loss * s) * std::exp(x[k]) / sum -
                         e / static_cast<double>(vocab) - (k == label ? 1 - e : 0);
        gradient.push_back(valid ? dy * d : 0);
      }
    }
  }
};

// Vocabularies of one warp, 256 and 1,024 threads a row, Llama 3's among them. The labels are the
// first and the last word, and some that are other threads'.
TYPED_TEST(SoftmaxCases, CrossEntropyIsThatOfFp64AndSkipsIgnoredRows) {
  using Place = typename TypeParam::Place;
  using T = typename TypeParam::T;
  constexpr float kDy = 0.25f;
  for (const int64_t vocab : {200, 5000, 128256})
    for (const double smoothing : {0.0, 0.1}) {
      const TokenLoss loss{smoothing / 100, smoothing};
      std::vector<int64_t> labels{3, -100, vocab - 1, 0};
      if (vocab > 100000) labels = {77777, -100};
      const auto rows = static_cast<int64_t>(labels.size());
      const auto logits = random_values<T>(rows * vocab, 4, 3);
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
}

}  // namespace
}  // namespace lockstep::core
