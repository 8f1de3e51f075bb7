#include "data/loader/whole_split.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::data {

Result<WholeSplit> WholeSplit::open(FileSystem& file_system, const std::filesystem::path& folder,
                                    const std::string& split, Shape shape, int64_t vocab_size) {
  LOCKSTEP_CHECK(shape.seq_len >= 1 && shape.rows >= 1, "T ", shape.seq_len, " B ", shape.rows);
  LOCKSTEP_TRY(const DatasetManifest manifest, read_manifest(file_system, folder));
  if (manifest.vocab_size > vocab_size)
    return Error{Code::kConfig, text("the model's vocabulary size ", vocab_size, " is below the ",
                                     manifest.vocab_size, " of ", folder.string(), " (tokenizer ",
                                     manifest.tokenizer, ")")};
  const int64_t packed = manifest.recipe.packed_seq_len;
  if (packed != 0 && packed != shape.seq_len)
    return Error{Code::kConfig, text(folder.string(), " is packed for sequences of ", packed,
                                     " tokens, but the sequence length is ", shape.seq_len)};
  if (manifest.tokens(split) < 2)
    return Error{Code::kConfig,
                 text("split \"", split, "\" of ", folder.string(), " has ", manifest.tokens(split),
                      " tokens, which is too few to predict any; take the other split, or "
                      "prepare the text with a larger --val-fraction")};
  std::shared_ptr<FileSystem> borrowed(&file_system, [](FileSystem*) {});
  return WholeSplit(open_shards(std::move(borrowed), folder, manifest, split), shape);
}

int64_t WholeSplit::batches() const {
  const int64_t tokens = shape_.seq_len * shape_.rows;
  return (predicted() + tokens - 1) / tokens;
}

Result<SlotBatch> WholeSplit::batch(int64_t index) const {
  LOCKSTEP_CHECK(index >= 0 && index < batches(), "batch ", index, " of ", batches());
  SlotBatch batch = empty_batch(shape_.rows, shape_.seq_len);
  for (int64_t row = 0; row < shape_.rows; ++row) {
    const int64_t first = (index * shape_.rows + row) * shape_.seq_len;
    const int64_t count = std::min(shape_.seq_len, predicted() - first);
    if (count <= 0) {
      batch.document_starts.push_back(row * shape_.seq_len);
      continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(read_row(*stream_, first, count, row, shape_.seq_len, batch));
  }
  return batch;
}

}  // namespace lockstep::data
