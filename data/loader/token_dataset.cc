#include "data/loader/token_dataset.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "data/order/sample_order.h"
#include "data/order/sample_plan.h"

namespace lockstep::data {
namespace {

class StreamDataset final : public TokenDataset {
 public:
  StreamDataset(Options options, std::vector<StreamSource> sources)
      : options_(std::move(options)),
        planned_(planned(sources, options_.seq_len)),
        plan_(planned_) {
    for (StreamSource& source : sources) {
      samples_.add((source.stream->tokens() - 1) / options_.seq_len);
      streams_.push_back(std::move(source.stream));
    }
  }

  int64_t sample_count() const override { return samples_.tokens(); }

  void set_origin(const SampleOrigin& origin) override {
    LOCKSTEP_CHECK(origin.before.empty() || origin.before.size() == planned_.size(),
                   origin.before.size(), " numbers for ", planned_.size(), " sources");
    for (size_t i = 0; i < planned_.size(); ++i)
      planned_[i].before = origin.before.empty() ? 0 : origin.before[i];
    LOCKSTEP_CHECK(origin.first_step >= 0, "step ", origin.first_step);
    plan_ = SamplePlan(planned_);
    first_step_ = origin.first_step;
  }

  Result<SlotBatch> batch(int64_t step, int64_t slot) const override {
    const int64_t B = options_.batch_size, V = options_.slots;
    LOCKSTEP_CHECK(step >= first_step_ && step <= (SampleOrder::kMaxSamples / V - 1) / B, "step ",
                   step);
    LOCKSTEP_CHECK(slot >= 0 && slot < V, "slot ", slot, " of ", V);
    SlotBatch batch = empty_batch(B, options_.seq_len);
    batch.step = step;
    batch.slot = slot;
    for (int64_t row = 0; row < B; ++row) {
      const SamplePlan::Place place = plan_.at(((step - first_step_) * V + slot) * B + row);
      LOCKSTEP_RETURN_IF_ERROR(read_sample(*streams_[place.source], place.sample, row, batch));
    }
    LOCKSTEP_CHECK(batch.valid_tokens <= B * options_.seq_len &&
                       std::ssize(batch.tokens) == B * options_.seq_len &&
                       batch.labels.size() == batch.tokens.size(),
                   batch.valid_tokens, " valid tokens of ", batch.tokens.size());
    return batch;
  }

  Result<SlotBatch> sample(int64_t index) const override {
    LOCKSTEP_CHECK(index >= 0 && index < sample_count(), "sample ", index);
    SlotBatch batch = empty_batch(1, options_.seq_len);
    const auto [source, begin] = samples_.find(index);
    LOCKSTEP_RETURN_IF_ERROR(read_sample(*streams_[source], begin, 0, batch));
    return batch;
  }

 private:
  static std::vector<SamplePlan::Source> planned(const std::vector<StreamSource>& sources,
                                                 int64_t seq_len) {
    std::vector<SamplePlan::Source> planned;
    for (const StreamSource& source : sources)
      planned.push_back({(source.stream->tokens() - 1) / seq_len, source.weight, source.seed});
    return planned;
  }

  Result<void> read_sample(const TokenStream& stream, int64_t index, int64_t row,
                           SlotBatch& batch) const {
    const int64_t T = options_.seq_len;
    return read_row(stream, index * T, T, row, T, batch);
  }

  const Options options_;
  std::vector<SamplePlan::Source> planned_;
  SamplePlan plan_;
  int64_t first_step_ = 0;
  std::vector<std::unique_ptr<TokenStream>> streams_;
  PartTable samples_;  // of each source
};

}  // namespace

SlotBatch empty_batch(int64_t rows, int64_t seq_len) {
  SlotBatch batch;
  batch.tokens.resize(static_cast<size_t>(rows * seq_len));
  batch.labels.resize(batch.tokens.size(), kNotCounted);
  return batch;
}

Result<void> read_row(const TokenStream& stream, int64_t first, int64_t count, int64_t row,
                      int64_t seq_len, SlotBatch& batch) {
  LOCKSTEP_CHECK(
      count > 0 && count <= seq_len && row >= 0 && (row + 1) * seq_len <= std::ssize(batch.tokens),
      count, " tokens in row ", row, " of ", seq_len, " in a batch of ", batch.tokens.size());
  std::vector<int64_t> sample(static_cast<size_t>(count + 1));
  LOCKSTEP_RETURN_IF_ERROR(stream.read(first, sample));
  std::copy(sample.begin(), sample.end() - 1, batch.tokens.begin() + row * seq_len);
  const auto labels = std::span(batch.labels)
                          .subspan(static_cast<size_t>(row * seq_len), static_cast<size_t>(count));
  std::copy(sample.begin() + 1, sample.end(), labels.begin());
  LOCKSTEP_RETURN_IF_ERROR(stream.mask(first + 1, labels));
  LOCKSTEP_RETURN_IF_ERROR(
      stream.document_starts(first, std::span(sample).first(static_cast<size_t>(count))));
  for (int64_t t = 0; t < count; ++t)
    if (t == 0 || sample[static_cast<size_t>(t)] == 1)
      batch.document_starts.push_back(row * seq_len + t);
  batch.valid_tokens += count - std::count(labels.begin(), labels.end(), kNotCounted);
  return {};
}

std::unique_ptr<TokenDataset> TokenDataset::over(Options options,
                                                 std::vector<StreamSource> sources) {
  LOCKSTEP_CHECK(options.seq_len >= 1 && options.batch_size >= 1 && options.slots >= 1, "T ",
                 options.seq_len, " B ", options.batch_size, " V ", options.slots);
  return std::make_unique<StreamDataset>(std::move(options), std::move(sources));
}

}  // namespace lockstep::data
