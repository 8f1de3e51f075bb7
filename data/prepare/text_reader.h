// Text files, compressed or not, as documents, documents as segments. A document is one file; a
// segment is the unit of tokenizing and of the train/validation split: at most kSegmentBytes, cut
// after the last line end in that window that no white space follows, else before the last single
// space, else before the character that does not fit. A document's cuts depend on its own bytes
// alone, so more input never moves them. Memory: one read buffer,
// whatever the file's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "data/prepare/byte_source.h"
#include "data/prepare/text_source.h"

namespace lockstep::data {

inline constexpr int64_t kSegmentBytes = int64_t{1} << 16;
// What a tokenizer has to see of `segment` before the next one: its last line, at most 256 bytes.
std::string_view end_of_segment(std::string_view segment);

inline constexpr int kMaxFolderDepth = 64;  // a loop of symbolic links ends here

// The documents of `inputs`: a file is one; a folder gives its files and those of its subfolders,
// in byte order of their names, without names that start with a dot. Files of a folder that say
// what its data is (README.md, dataset_info.json, …) are passed over.
// Errors: kNotFound (an input), kConfig (an empty file, a token shard, a folder with no file,
// folders too deep), kIo.
Result<std::vector<Document>> list_documents(FileSystem& file_system,
                                             const std::vector<std::filesystem::path>& inputs);
struct DocumentList {
  std::vector<Document> documents;
  std::vector<std::filesystem::path> passed_over = {};
};
Result<DocumentList> list_inputs(FileSystem& file_system,
                                 const std::vector<std::filesystem::path>& inputs);

// Offset of the first byte that is not valid UTF-8 (Unicode 15, table 3-7: no overlong forms, no
// surrogates, nothing above U+10FFFF), or nothing.
std::optional<size_t> find_invalid_utf8(std::string_view bytes);

class SegmentReader {
 public:
  // Errors: open_text's.
  static Result<SegmentReader> open(FileSystem& file_system, const Document& document,
                                    ByteSource::Observer observer = {});
  // The next segment, valid until the next call; empty at the end.
  // Errors: kConfig, naming file and byte offset of what is not UTF-8; append_to's.
  Result<std::string_view> next();

 private:
  SegmentReader(OpenedText opened, std::filesystem::path path)
      : path_(std::move(path)),
        source_(std::move(opened.source)),
        given_bytes_(opened.skipped_bytes) {}
  std::filesystem::path path_;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t begin_ = 0;     // of what `next` has not given out, in buffer_
  int64_t given_bytes_;  // to the caller, so far
  bool ended_ = false;
};

// The error for a text with a byte that is not UTF-8.
Error not_utf8(const std::filesystem::path& path, int64_t byte_offset, char byte);

}  // namespace lockstep::data
