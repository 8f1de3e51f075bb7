// One split of one source as a stream of tokens, whatever the files are. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "data/formats/manifest.h"

namespace lockstep::data {

inline constexpr int64_t kNotCounted = -100;

class TokenStream {
 public:
  virtual ~TokenStream() = default;
  virtual int64_t tokens() const = 0;
  // Copies tokens [first, first + out.size()). Requires: they lie in the stream.
  // Errors: kCorrupt, kConfig (a token outside the vocabulary), naming file and offset; kIo.
  virtual Result<void> read(int64_t first, std::span<int64_t> out) const = 0;
  // `labels` are tokens [first, …); those that the loss leaves out become kNotCounted.
  // Errors: read's.
  virtual Result<void> mask(int64_t /*first*/, std::span<int64_t> /*labels*/) const { return {}; }
  // out[i] = 1 where token first + i starts a document, as far as the source records it, else 0.
  // Errors: read's.
  virtual Result<void> document_starts(int64_t /*first*/, std::span<int64_t> out) const {
    std::fill(out.begin(), out.end(), 0);
    return {};
  }
};

// The shards of one split of a folder made by prepare. `manifest` is that folder's. A shard is
// opened when it is read for the first time, and the stream keeps a few hundred of them open; what
// is wrong with a shard's size or header is an error of that read.
std::unique_ptr<TokenStream> open_shards(std::shared_ptr<FileSystem> file_system,
                                         const std::filesystem::path& folder,
                                         const DatasetManifest& manifest, const std::string& split);

// Whether each shard of the split is there, with the manifest's size and header: one open and one
// read for each. Errors: kCorrupt, naming the file; kIo.
Result<void> check_shards(FileSystem& file_system, const std::filesystem::path& folder,
                          const DatasetManifest& manifest, const std::string& split);

// Where the parts of a stream (files, shards) lie in it, one after the other.
class PartTable {
 public:
  void add(int64_t tokens) {
    first_.push_back(tokens_);
    tokens_ += tokens;
  }
  int64_t tokens() const { return tokens_; }
  struct Place {
    size_t part = 0;
    int64_t begin = 0;  // in that part
  };
  // Requires: 0 <= first < tokens().
  Place find(int64_t first) const {
    const auto part = static_cast<size_t>(std::upper_bound(first_.begin(), first_.end(), first) -
                                          first_.begin() - 1);
    return {part, first - first_[part]};
  }
  // Calls f(part, first token in that part, span) for each piece of `span`, which stands for tokens
  // [first, …) of the stream, until one fails.
  template <typename T, typename F>
  Result<void> for_each(int64_t first, std::span<T> span, F&& f) const {
    auto [part, begin] = find(first);
    for (; !span.empty(); ++part, begin = 0) {
      const int64_t end = part + 1 < first_.size() ? first_[part + 1] : tokens_;
      const auto count = std::min(span.size(), static_cast<size_t>(end - first_[part] - begin));
      LOCKSTEP_RETURN_IF_ERROR(f(part, begin, span.first(count)));
      span = span.subspan(count);
    }
    return {};
  }

 private:
  std::vector<int64_t> first_;  // of each part
  int64_t tokens_ = 0;
};

}  // namespace lockstep::data
