#include "data/token_dataset.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "data/sample_order.h"
#include "data/token_shard.h"

namespace lockstep::data {

namespace {

class ShardedDataset final : public TokenDataset {
 public:
  ShardedDataset(Options options, DatasetManifest manifest,
                 std::vector<std::unique_ptr<ShardReader>> shards,
                 std::vector<std::unique_ptr<ShardReader>> masks)
      : options_(std::move(options)),
        manifest_(std::move(manifest)),
        shards_(std::move(shards)),
        masks_(std::move(masks)) {
    for (const auto& shard : shards_) {
      first_token_.push_back(tokens_);
      tokens_ += shard->tokens();
    }
    sample_count_ = (tokens_ - 1) / options_.seq_len;
  }

  int64_t sample_count() const override { return sample_count_; }
  const DatasetManifest& manifest() const override { return manifest_; }

  Result<SlotBatch> batch(int64_t step, int64_t slot) const override {
    const int64_t B = options_.batch_size, V = options_.slots;
    LOCKSTEP_CHECK(step >= 0 && step <= (SampleOrder::kMaxSamples / V - 1) / B, "step ", step);
    LOCKSTEP_CHECK(slot >= 0 && slot < V, "slot ", slot, " of ", V);
    SlotBatch batch = empty_batch(B);
    batch.step = step;
    batch.slot = slot;
    for (int64_t row = 0; row < B; ++row) {
      const int64_t index = (step * V + slot) * B + row;
      const SampleOrder order(sample_count_, options_.seed, index / sample_count_);
      LOCKSTEP_RETURN_IF_ERROR(read_sample(order(index % sample_count_), row, batch));
    }
    return batch;
  }

  Result<SlotBatch> sample(int64_t index) const override {
    LOCKSTEP_CHECK(index >= 0 && index < sample_count_, "sample ", index);
    SlotBatch batch = empty_batch(1);
    LOCKSTEP_RETURN_IF_ERROR(read_sample(index, 0, batch));
    return batch;
  }

 private:
  SlotBatch empty_batch(int64_t rows) const {
    SlotBatch batch;
    batch.tokens.resize(static_cast<size_t>(rows * options_.seq_len));
    batch.labels.resize(batch.tokens.size());
    return batch;
  }

  // Sample `index` into row `row`.
  Result<void> read_sample(int64_t index, int64_t row, SlotBatch& batch) const {
    const int64_t T = options_.seq_len;
    std::vector<int64_t> sample(static_cast<size_t>(T + 1));
    LOCKSTEP_RETURN_IF_ERROR(read_stream(index * T, sample));
    std::copy(sample.begin(), sample.end() - 1, batch.tokens.begin() + row * T);
    const auto labels = std::span(batch.labels).subspan(static_cast<size_t>(row * T),
                                                        static_cast<size_t>(T));
    std::copy(sample.begin() + 1, sample.end(), labels.begin());
    if (!masks_.empty()) LOCKSTEP_RETURN_IF_ERROR(mask_labels(index * T + 1, labels));
    batch.valid_tokens += T - std::count(labels.begin(), labels.end(), kNotCounted);
    return {};
  }

  // Tokens [first, first + out.size()) of the concatenated shards.
  Result<void> read_stream(int64_t first, std::span<int64_t> out) const {
    auto shard =
        static_cast<size_t>(std::upper_bound(first_token_.begin(), first_token_.end(), first) -
                            first_token_.begin() - 1);
    while (!out.empty()) {
      const int64_t begin = first - first_token_[shard];
      const int64_t count =
          std::min<int64_t>(static_cast<int64_t>(out.size()), shards_[shard]->tokens() - begin);
      LOCKSTEP_RETURN_IF_ERROR(shards_[shard]->read(begin, out.first(static_cast<size_t>(count))));
      out = out.subspan(static_cast<size_t>(count));
      first += count;
      ++shard;
    }
    return {};
  }

  // Labels of tokens [first, …) of the stream that the mask leaves out become kNotCounted.
  Result<void> mask_labels(int64_t first, std::span<int64_t> labels) const {
    std::vector<int64_t> words;
    auto shard =
        static_cast<size_t>(std::upper_bound(first_token_.begin(), first_token_.end(), first) -
                            first_token_.begin() - 1);
    while (!labels.empty()) {
      const int64_t begin = first - first_token_[shard];
      const int64_t count =
          std::min<int64_t>(static_cast<int64_t>(labels.size()), shards_[shard]->tokens() - begin);
      const int64_t first_word = begin / kMaskWordBits;
      words.resize(static_cast<size_t>(mask_words(begin + count) - first_word));
      LOCKSTEP_RETURN_IF_ERROR(masks_[shard]->read(first_word, words));
      for (int64_t i = 0; i < count; ++i) {
        const int64_t bit = begin + i - first_word * kMaskWordBits;
        if (!(words[static_cast<size_t>(bit / kMaskWordBits)] >> (bit % kMaskWordBits) & 1))
          labels[static_cast<size_t>(i)] = kNotCounted;
      }
      labels = labels.subspan(static_cast<size_t>(count));
      first += count;
      ++shard;
    }
    return {};
  }

  const Options options_;
  const DatasetManifest manifest_;
  const std::vector<std::unique_ptr<ShardReader>> shards_;
  const std::vector<std::unique_ptr<ShardReader>> masks_;  // of each shard, or none
  std::vector<int64_t> first_token_;  // of each shard in the stream
  int64_t tokens_ = 0;
  int64_t sample_count_ = 0;
};

}  // namespace

Result<std::unique_ptr<TokenDataset>> TokenDataset::open(FileSystem& file_system, Options options) {
  LOCKSTEP_CHECK(options.seq_len >= 1 && options.batch_size >= 1 && options.slots >= 1, "T ",
                 options.seq_len, " B ", options.batch_size, " V ", options.slots);
  LOCKSTEP_TRY(DatasetManifest manifest, read_manifest(file_system, options.folder));
  if (options.vocab_size < manifest.vocab_size)
    return Error{Code::kConfig,
                 text("the model's vocabulary size ", options.vocab_size, " is below the ",
                      manifest.vocab_size, " of ", options.folder.string(), " (tokenizer ",
                      manifest.tokenizer, ")")};
  const int64_t tokens = manifest.tokens(options.split);
  if (tokens < options.seq_len + 1)
    return Error{Code::kConfig, text("training.seq_len ", options.seq_len, " needs ",
                                     options.seq_len + 1, " tokens, but split \"", options.split,
                                     "\" of ", options.folder.string(), " has ", tokens)};
  std::vector<std::unique_ptr<ShardReader>> shards, masks;
  for (const ShardInfo& info : manifest.shards) {
    if (info.split != options.split) continue;
    LOCKSTEP_TRY(auto shard, ShardReader::open(file_system, options.folder, info, manifest.dtype,
                                               manifest.vocab_size));
    shards.push_back(std::move(shard));
    if (!info.mask) continue;
    const ShardInfo mask{info.mask->file, mask_words(info.tokens), info.split,
                         info.mask->block_xxh3, std::nullopt};
    LOCKSTEP_TRY(auto words, ShardReader::open(file_system, options.folder, mask, "u16",
                                               int64_t{1} << kMaskWordBits));
    masks.push_back(std::move(words));
  }
  return std::unique_ptr<TokenDataset>(
      std::make_unique<ShardedDataset>(std::move(options), std::move(manifest),
                                       std::move(shards), std::move(masks)));
}

}  // namespace lockstep::data
