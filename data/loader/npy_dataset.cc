#include "data/loader/npy_dataset.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/formats/integer_type.h"
#include "data/formats/npy_file.h"

namespace lockstep::data {
namespace {

constexpr int64_t kReadElements = 1 << 16;  // at once

struct NpyArray {
  std::unique_ptr<File> file;
  std::string path;
  NpyHeader header;
  IntegerType type;
  NpyTokens shape;
};

Result<NpyArray> open_array(FileSystem& file_system, const std::filesystem::path& path) {
  NpyArray array;
  array.path = path.string();
  auto file = file_system.open(path);
  if (!file.ok()) return Error{Code::kConfig, file.error().message};
  array.file = std::move(file).value();
  LOCKSTEP_TRY(array.header, read_npy_header(*array.file, array.path));
  const NpyHeader& h = array.header;
  const auto type = integer_type(h.descr);
  if (!type)
    return Error{Code::kConfig,
                 text(array.path, ": dtype ", h.descr, ", but tokens must be integers")};
  array.type = *type;
  if (h.shape.size() != 3 || h.elements() == 0)
    return Error{Code::kConfig,
                 text(array.path, " has ", h.shape.size(), " dimensions and ", h.elements(),
                      " tokens; it must be [steps, sequences, T], or a stream of one dimension")};
  array.shape = {h.shape[0], h.shape[1], h.shape[2]};
  return array;
}

// Tokens [first, first + out.size()) of the array.
Result<void> read_tokens(const NpyArray& array, int64_t first, std::span<int64_t> out) {
  const NpyHeader& h = array.header;
  std::vector<std::byte> bytes(out.size() * static_cast<size_t>(h.item_bytes));
  LOCKSTEP_RETURN_IF_ERROR(array.file->read_at(bytes, h.first_byte + first * h.item_bytes));
  widen(bytes.data(), array.type, out);
  return {};
}

// Calls f(first index, tokens) for all of the array, in order.
template <typename F>
Result<void> for_all_tokens(const NpyArray& array, F&& f) {
  const int64_t total = array.header.elements();
  std::vector<int64_t> tokens;
  for (int64_t at = 0; at < total; at += kReadElements) {
    tokens.resize(static_cast<size_t>(std::min(kReadElements, total - at)));
    LOCKSTEP_RETURN_IF_ERROR(read_tokens(array, at, tokens));
    LOCKSTEP_RETURN_IF_ERROR(f(at, tokens));
  }
  return {};
}

class NpyDataset final : public TokenDataset {
 public:
  NpyDataset(Options options, NpyArray array)
      : options_(std::move(options)), array_(std::move(array)) {}

  int64_t sample_count() const override { return array_.shape.steps * array_.shape.sequences; }

  Result<SlotBatch> batch(int64_t step, int64_t slot) const override {
    const int64_t B = options_.batch_size;
    LOCKSTEP_CHECK(step >= 0 && slot >= 0 && slot < options_.slots, step, " ", slot);
    LOCKSTEP_TRY(SlotBatch batch,
                 sequences(step % array_.shape.steps * array_.shape.sequences + slot * B, B));
    batch.step = step;
    batch.slot = slot;
    return batch;
  }

  Result<SlotBatch> sample(int64_t index) const override { return sequences(index, 1); }

 private:
  // `count` sequences from number `first` on: [count, T].
  Result<SlotBatch> sequences(int64_t first, int64_t count) const {
    const int64_t T = options_.seq_len;
    SlotBatch batch;
    batch.tokens.resize(static_cast<size_t>(count * T));
    LOCKSTEP_RETURN_IF_ERROR(read_tokens(array_, first * T, batch.tokens));
    batch.labels.assign(batch.tokens.begin() + 1, batch.tokens.end());
    batch.labels.push_back(kNotCounted);
    for (int64_t row = 1; row < count; ++row)
      batch.labels[static_cast<size_t>(row * T - 1)] = kNotCounted;
    for (int64_t row = 0; row < count; ++row) batch.document_starts.push_back(row * T);
    batch.valid_tokens = count * (T - 1);
    return batch;
  }

  const Options options_;
  const NpyArray array_;
};

}  // namespace

Result<NpyTokens> read_npy_tokens(FileSystem& file_system, const std::filesystem::path& path) {
  LOCKSTEP_TRY(const NpyArray array, open_array(file_system, path));
  return array.shape;
}

Result<std::unique_ptr<TokenDataset>> open_npy(FileSystem& file_system,
                                               const std::filesystem::path& path,
                                               TokenDataset::Options options) {
  LOCKSTEP_TRY(NpyArray array, open_array(file_system, path));
  const auto wrong = [&](const auto&... what) {
    return Error{Code::kConfig, text(array.path, what...)};
  };
  if (options.split != "train")
    return wrong(" has no held-out samples; set validation.freq = 0 with data.kind npy");
  if (array.shape.seq_len != options.seq_len)
    return wrong(" has sequences of ", array.shape.seq_len, " tokens, but training.seq_len is ",
                 options.seq_len);
  if (array.shape.sequences != options.slots * options.batch_size)
    return wrong(" has ", array.shape.sequences,
                 " sequences a step and training.slots = ", options.slots,
                 " of local_batch_size = ", options.batch_size, " take ",
                 options.slots * options.batch_size);
  LOCKSTEP_RETURN_IF_ERROR(
      for_all_tokens(array, [&](int64_t first, const std::vector<int64_t>& tokens) -> Result<void> {
        for (size_t i = 0; i < tokens.size(); ++i)
          if (tokens[i] < 0 || tokens[i] >= options.vocab_size)
            return wrong(": token ", tokens[i], " at index ", first + static_cast<int64_t>(i),
                         " is outside the vocabulary of ", options.vocab_size);
        return {};
      }));
  return std::unique_ptr<TokenDataset>(
      std::make_unique<NpyDataset>(std::move(options), std::move(array)));
}

Result<std::string> hash_npy(FileSystem& file_system, const std::filesystem::path& path) {
  LOCKSTEP_TRY(const NpyArray array, open_array(file_system, path));
  Xxh3Stream stream;
  const NpyTokens& shape = array.shape;
  stream.update(as_bytes(text(shape.steps, " ", shape.sequences, " ", shape.seq_len)));
  LOCKSTEP_RETURN_IF_ERROR(
      for_all_tokens(array, [&](int64_t, const std::vector<int64_t>& tokens) -> Result<void> {
        stream.update(std::as_bytes(std::span(tokens)));
        return {};
      }));
  return hex64(stream.digest());
}

}  // namespace lockstep::data
