// Arrays of more than 2^31 elements: their memory is reserved and never filled, and of each launch
// a few blocks run. A place that is computed in 32 bits lies outside of the array, or elsewhere in
// it: what a row far behind becomes must be what it becomes alone.
#include <sys/mman.h>

#include "base/check.h"
#include "core/kernels/adamw_kernels.h"
#include "core/kernels/add_kernels.h"
#include "core/kernels/digest_kernels.h"
#include "core/kernels/dropout_kernels.h"
#include "core/kernels/elementwise_kernels.h"
#include "core/kernels/initial_kernels.h"
#include "core/kernels/muon_kernels.h"
#include "core/kernels/norm_kernels.h"
#include "core/kernels/softmax_kernels.h"
#include "tests/cuda_host/case_values.h"
#include "tests/cuda_host/emulator.h"

namespace lockstep::core {
namespace {

constexpr int64_t kFar = int64_t{1} << 31;
constexpr float kEps = 1e-5f;

// n elements, all zero, with pages behind and before that nobody may touch.
template <typename T>
class Sparse {
 public:
  explicit Sparse(int64_t n) : bytes_(static_cast<size_t>(n) * sizeof(T)) {
    whole_bytes_ = (bytes_ + kPage - 1) / kPage * kPage + 2 * kPage;
    void* const whole = ::mmap(nullptr, whole_bytes_, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    LOCKSTEP_CHECK(whole != MAP_FAILED, "cannot reserve ", whole_bytes_, " bytes");
    whole_ = static_cast<std::byte*>(whole);
    LOCKSTEP_CHECK(
        ::mprotect(whole_ + kPage, whole_bytes_ - 2 * kPage, PROT_READ | PROT_WRITE) == 0,
        "cannot open ", bytes_, " bytes");
    first_ = reinterpret_cast<T*>(whole_ + whole_bytes_ - kPage - bytes_);
    cuda_host::show_memory(first_, bytes_);
  }
  ~Sparse() {
    cuda_host::hide_memory(first_);
    ::munmap(whole_, whole_bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;

  T* get() const { return first_; }
  void put(int64_t at, const std::vector<T>& values) {
    std::copy(values.begin(), values.end(), first_ + at);
  }
  std::vector<T> read(int64_t at, int64_t n) const { return {first_ + at, first_ + at + n}; }

 private:
  static constexpr size_t kPage = 65536;  // whole pages, also on Arm
  size_t bytes_, whole_bytes_;
  std::byte* whole_;
  T* first_;
};

// Of the launches in its scope these blocks alone run.
struct OnlyBlocks {
  explicit OnlyBlocks(std::vector<int64_t> blocks) {
    cuda_host::settings().only_blocks = std::move(blocks);
  }
  ~OnlyBlocks() { cuda_host::settings().only_blocks.clear(); }
};

std::vector<float> zeros(int64_t n) { return std::vector<float>(static_cast<size_t>(n)); }

// A block has 1,024 elements, 2,048, or a tile.
TEST(FarIndex, ElementsBehindTwoToThe31AreThoseAlone) {
  constexpr int64_t kBlock = 1024, kTail = 1000, kLast = kFar, kCount = kLast + kTail;
  const auto part = random_values<Bf16>(kTail, 1);
  const auto g = random_values<float>(kTail, 2), w = random_values<float>(kTail, 3);
  const AdamWStep step = AdamWStep::create(1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 1);
  const MuonStep muon = MuonStep::create(1e-3, 0.95, 0.1, 1, 64, 64);
  Sparse<float> sum(kCount), grad(kCount), m(kCount), v(kCount);
  Sparse<Bf16> narrowed(kCount), added(kCount);
  sum.put(kLast, w);
  grad.put(kLast, g);
  added.put(kLast, part);
  Array<OnCuda, float> one(w), one_grad(g), one_m(zeros(kTail)), one_v(zeros(kTail));
  Array<OnCuda, Bf16> one_narrow(part), one_part(part);
  const auto compute = [&](auto& s, auto& p, auto& nr, auto& gr, auto& m1, auto& m2, int64_t n) {
    FoldTerms<Bf16> terms;
    terms.add_part(p.get());
    terms.add_part(p.get());
    terms.add_sum(s.get());
    fold<OnCuda>(s.get(), terms, n);
    const AdamWRun<float> run{gr.get(), s.get(), m1.get(), m2.get(), nr.get(), n, {}, true};
    adamw_update<OnCuda>(step, std::span(&run, 1));
    muon_momentum<OnCuda>(muon, gr.get(), m1.get(), nr.get(), n);
    muon_update<OnCuda>(muon, nr.get(), s.get(), p.get(), n);
    narrow<OnCuda>(nr.get(), s.get(), n);
    gelu_forward<OnCuda>(nr.get(), p.get(), n);
    gelu_backward<OnCuda>(nr.get(), p.get(), n);
    soft_cap_forward<OnCuda>(nr.get(), n, 0.5f, 2.0f);
    soft_cap_backward<OnCuda>(nr.get(), p.get(), n, 0.5f, 2.0f);
  };
  compute(one, one_part, one_narrow, one_grad, one_m, one_v, kTail);
  const OnlyBlocks only(
      {kLast / kBlock, kLast / (2 * kBlock), kLast / (4 * kBlock), 0, kFar / kBlock - 1});
  compute(sum, added, narrowed, grad, m, v, kCount);
  expect_same_bits(sum.read(kLast, kTail), one.read(), "sum");
  expect_same_bits(m.read(kLast, kTail), one_m.read(), "m");
  expect_same_bits(v.read(kLast, kTail), one_v.read(), "v");
  expect_same_bits(narrowed.read(kLast, kTail), one_narrow.read(), "narrow");
  expect_same_bits(added.read(kLast, kTail), one_part.read(), "gelu");
  expect_same_bits(sum.read(0, 256), zeros(256), "the first elements");
}

// A block has a tile; what its elements are rounded by goes by their places.
TEST(FarIndex, MomentsInBf16AreThoseAlone) {
  constexpr int64_t kTile = 4096, kCount = kFar + 1000, kLast = kCount / kTile * kTile;
  constexpr int64_t kTail = kCount - kLast;
  const auto g = random_values<float>(kTail, 1), w = random_values<float>(kTail, 2);
  const AdamWStep step = AdamWStep::create(1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 1);
  Sparse<float> weights(kCount), grad(kCount);
  Sparse<Bf16> m(kCount), v(kCount);
  weights.put(kLast, w);
  grad.put(kLast, g);
  const std::vector<Bf16> nothing(kTail);
  Array<OnCuda, float> one(w), one_grad(g);
  Array<OnCuda, Bf16> one_m(nothing), one_v(nothing);
  const AdamWRun<Bf16> alone{one_grad.get(), one.get(), one_m.get(), one_v.get(),
                             nullptr,        kTail,     {5, kLast},  true};
  adamw_update<OnCuda>(step, std::span(&alone, 1));
  const AdamWRun<Bf16> all{grad.get(), weights.get(), m.get(), v.get(),
                           nullptr,    kCount,        {5, 0},  true};
  const OnlyBlocks only({kLast / kTile});
  adamw_update<OnCuda>(step, std::span(&all, 1));
  expect_same_bits(weights.read(kLast, kTail), one.read(), "weights");
  expect_same_bits(m.read(kLast, kTail), one_m.read(), "m");
  expect_same_bits(v.read(kLast, kTail), one_v.read(), "v");
}

TEST(FarIndex, DigestsAreThoseAlone) {
  constexpr int64_t kTile = 4096, kLast = kFar / kTile * kTile + kTile;
  const auto tile = random_values<float>(kTile, 1);
  Sparse<float> elements(kLast + kTile);
  elements.put(kLast, tile);
  const DigestRun run{kLast, kTile, 5};
  Array<OnCuda, uint64_t> sum(std::vector<uint64_t>(1));
  digest_runs_on_cuda(reinterpret_cast<const std::byte*>(elements.get()), sizeof(float), {&run, 1},
                      sum.get());
  EXPECT_EQ(sum.read().front(), digest_of_tiles(std::as_bytes(std::span(tile)), sizeof(float), 5));
}

TEST(FarIndex, InitialValuesAreThoseOfTheCpu) {
  constexpr int64_t kBlock = 128 * 4, kTail = 77, kCount = kFar + kTail, kFirst = kFar * 2;
  Sparse<float> drawn(kCount);
  Array<OnCpu, float> tail(zeros(kTail));
  for (const bool uniform : {false, true}) {
    const OnlyBlocks only({kFar / kBlock});
    draw_initial<OnCuda>({1, kFirst, 0.02, uniform}, drawn.get(), kCount);
    draw_initial<OnCpu>({1, kFirst + kFar, 0.02, uniform}, tail.get(), kTail);
    expect_same_bits(drawn.read(kFar, kTail), tail.read(), "drawn");
  }
  expect_same_bits(drawn.read(0, kBlock), zeros(kBlock), "the first elements");
}

TEST(FarIndex, RowsOfNormsAreThoseAlone) {
  constexpr int64_t kDim = 4096, kRows = kFar / kDim + 77, kLast = kRows - 1;
  const auto x_row = random_values<Bf16>(kDim, 1), w_row = random_values<Bf16>(kDim, 2);
  const auto dy_row = random_values<Bf16>(kDim, 3);
  Sparse<Bf16> x(kRows * kDim), y(kRows * kDim), dy(kRows * kDim);
  Sparse<float> scale(2 * kRows);
  x.put(kLast * kDim, x_row);
  dy.put(kLast * kDim, dy_row);
  Array<OnCuda, Bf16> w(w_row), one(x_row), one_y(x_row), one_dy(dy_row);
  Array<OnCuda, float> one_scale(zeros(2)), dw(zeros(kDim)), db(zeros(kDim));
  const auto compute = [&](auto& in, auto& out, auto& d, auto& s, int64_t rows) {
    rms_norm_forward<OnCuda>(in.get(), d.get(), w.get(), out.get(), s.get(), rows, 1, kDim, kDim,
                             kEps);
    rms_norm_backward<OnCuda, Bf16>(d.get(), in.get(), w.get(), s.get(), out.get(), d.get(),
                                    dw.get(), rows, 1, kDim, kDim);
    layer_norm_forward<OnCuda>(d.get(), in.get(), w.get(), w.get(), out.get(), s.get(), rows, kDim,
                               kEps);
    layer_norm_backward<OnCuda, Bf16>(out.get(), d.get(), w.get(), s.get(), d.get(), out.get(),
                                      dw.get(), db.get(), rows, kDim);
  };
  compute(one, one_y, one_dy, one_scale, 1);
  // The last row, and the last block of rows; the last run of rows, of the last columns.
  const OnlyBlocks only({kLast, kLast / 8, 256 * (kDim / 128) - 1});
  compute(x, y, dy, scale, kRows);
  expect_same_bits(y.read(kLast * kDim, kDim), one_y.read(), "y");
  expect_same_bits(dy.read(kLast * kDim, kDim), one_dy.read(), "dx");
}

TEST(FarIndex, RowsOfLogitsAndScoresAreThoseAlone) {
  constexpr int64_t kVocab = 128256, kRows = kFar / kVocab + 5, kLast = kRows - 1;
  const auto row = random_values<Bf16>(kVocab, 4, 3);
  Sparse<Bf16> logits(kRows * kVocab), p(kRows * kVocab);
  std::vector<int64_t> all_labels(kRows, -100);
  all_labels.back() = 128000;
  Array<OnCuda, int64_t> labels(all_labels), one_label({128000});
  Array<OnCuda, double> losses{std::vector<double>(kRows)}, one_loss{std::vector<double>(1)};
  Array<OnCuda, Bf16> one(row), one_p(row);
  logits.put(kLast * kVocab, row);
  p.put(kLast * kVocab, row);
  const ScoreBlock block{kVocab, 1, 1, 0, kVocab, 0};
  const auto compute = [&](auto& x, auto& prob, auto& label, auto& loss, int64_t rows) {
    cross_entropy<OnCuda>(x.get(), label.get(), rows, kVocab, {1e-4, 0.1}, 0.25f, true, loss.get());
    masked_softmax<OnCuda>(prob.get(), rows, block, 0.5f);
    masked_softmax_backward<OnCuda>(prob.get(), x.get(), rows, block, 0.5f);
  };
  compute(one, one_p, one_label, one_loss, 1);
  const OnlyBlocks only({kLast});
  compute(logits, p, labels, losses, kRows);
  EXPECT_EQ(losses.read().back(), one_loss.read()[0]);
  expect_same_bits(logits.read(kLast * kVocab, kVocab), one.read(), "gradient");
  expect_same_bits(p.read(kLast * kVocab, kVocab), one_p.read(), "p");
}

TEST(FarIndex, HeadsAndGatesAreThoseAlone) {
  constexpr int64_t kDim = 4096, kHeadDim = 128, kRows = kFar / kDim + 3, kLast = kRows - 1;
  constexpr int64_t kHeads = kDim / kHeadDim, kPairs = kDim / 2;
  const auto row = random_values<Bf16>(kDim, 5), gates = random_values<Bf16>(2 * kDim, 6);
  Sparse<Bf16> x(kRows * kDim), gate_up(2 * kRows * kDim);
  Sparse<int64_t> positions(kRows);
  Array<OnCuda, float> cos(random_values<float>(kHeadDim / 2, 7));
  Array<OnCuda, Bf16> one(row), one_gates(gates);
  Array<OnCuda, int64_t> one_position({0});
  x.put(kLast * kDim, row);
  gate_up.put(2 * kLast * kDim, gates);
  const auto turn = [&](auto& heads, auto& places, int64_t rows) {
    rotate_heads<OnCuda>(heads.get(), cos.get(), cos.get(), places.get(), rows, kHeads, kHeadDim,
                         kDim, 1.0f);
  };
  const auto gate = [&](auto& both, auto& out, int64_t rows) {
    swiglu_forward<OnCuda>(both.get(), out.get(), rows, kDim);
    swiglu_backward<OnCuda>(out.get(), both.get(), rows, kDim);
    geglu_forward<OnCuda>(both.get(), out.get(), rows, kDim);
    geglu_backward<OnCuda>(out.get(), both.get(), rows, kDim);
  };
  turn(one, one_position, 1);
  // A block has 128 runs, of 4 pairs or 8 gates.
  constexpr int64_t kParts = kDim / (128 * 8);
  const OnlyBlocks only(
      {kLast * kParts, kLast * kParts + 1, kLast * kParts + 2, kLast * kParts + 3});
  static_assert(kParts == 4 && kParts * 128 * 4 == kPairs);
  turn(x, positions, kRows);
  expect_same_bits(x.read(kLast * kDim, kDim), one.read(), "heads");
  gate(one_gates, one, 1);
  gate(gate_up, x, kRows);
  expect_same_bits(x.read(kLast * kDim, kDim), one.read(), "swiglu");
  expect_same_bits(gate_up.read(2 * kLast * kDim, 2 * kDim), one_gates.read(), "its gradient");
}

void expect_leaves_far_behind() {
  const auto values = random_values<float>(8, 10);
  Sparse<double> leaves(kFar + 8);
  leaves.put(kFar, widened(values));
  Array<OnCuda, double> one(widened(values)), sums{std::vector<double>(2)};
  const layout::SlotRun far{kFar, 8}, alone{0, 8};
  sum_subtrees<OnCuda>(leaves.get(), {&far, 1}, sums.get());
  sum_subtrees<OnCuda>(one.get(), {&alone, 1}, sums.get() + 1);
  EXPECT_EQ(sums.read()[0], sums.read()[1]);
}

TEST(FarIndex, SumsOfTilesTokensAndColumnsAreThoseAlone) {
  constexpr int64_t kTile = 4096, kTiles = kFar / kTile + 11, kTilesABlock = 8;
  constexpr int64_t kFirst = kTiles / kTilesABlock * kTilesABlock, kRest = kTiles - kFirst;
  const auto tail = random_values<float>(kRest * kTile, 8);
  Sparse<float> grad(kTiles * kTile);
  Sparse<double> sums(kTiles);
  grad.put(kFirst * kTile, tail);
  Array<OnCuda, float> one(tail);
  Array<OnCuda, double> one_sums{std::vector<double>(kRest)};
  scale_and_square_tiles<OnCuda>(one.get(), 0.3f, kRest, one_sums.get());
  {
    const OnlyBlocks only({kTiles / kTilesABlock});
    scale_and_square_tiles<OnCuda>(grad.get(), 0.3f, kTiles, sums.get());
  }
  expect_same_bits(sums.read(kFirst, kRest), one_sums.read(), "sums");
  expect_same_bits(grad.read(kFirst * kTile, kRest * kTile), one.read(), "grad");
  expect_leaves_far_behind();

  // The last token of an embedding, and its row far behind in the gradient.
  constexpr int64_t kDim = 16896, kToken = 128255, kRow = kFar / kDim + 1;
  const auto dy_row = random_values<Bf16>(kDim, 9);
  Sparse<float> embedding((kToken + 1) * kDim);
  Sparse<Bf16> dy((kRow + 1) * kDim);
  dy.put(kRow * kDim, dy_row);
  Array<OnCuda, int64_t> token({kToken}), order({kRow});
  add_rows_by_token(embedding.get(), dy.get(), token.get(), order.get(), 1, kDim);
  const std::vector<double> want = widened(dy_row);
  expect_close(embedding.read(kToken * kDim, kDim), want, 0, "embedding");

  // The last run of rows, and the last block of a dropout whose counters are beyond 2^32.
  constexpr int64_t kCount = (kRow + 1) * kDim, kPlace = kFar * 64, kBlock = 256 * 32;
  constexpr int64_t kLastBlock = (kCount - 1) / kBlock, kBegin = kLastBlock * kBlock;
  const DropoutDraw draw{1, 2, uint32_t{1} << 30, 2.0f};
  Array<OnCuda, float> columns(zeros(kDim));
  Array<OnCpu, Bf16> last(dy.read(kBegin, kCount - kBegin));
  const OnlyBlocks only({256 * (kDim / 128) - 1, kLastBlock});
  add_columns<OnCuda>(columns.get(), dy.get(), kRow + 1, kDim, kDim);
  dropout<OnCuda>(dy.get(), kPlace, kCount, draw);
  dropout<OnCpu>(last.get(), kPlace + kBegin, kCount - kBegin, draw);
  expect_same_bits(dy.read(kBegin, kCount - kBegin), last.read(), "dropout");
}

}  // namespace
}  // namespace lockstep::core
