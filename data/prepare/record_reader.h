// The records of a file, one after the other, each as the text of a JSON object: JSON lines, one
// JSON array of objects, or a table of comma- or tab-separated values whose first row names the
// columns (RFC 4180; every value is a string). The file's name says what is a table, and its first
// bytes tell an array from lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "data/prepare/byte_source.h"

namespace lockstep::data {

inline constexpr int64_t kMaxRecordBytes = int64_t{64} << 20;

enum class RecordKind { kLines, kArray, kCommas, kTabs };
// "JSON lines", "a JSON array", …
const char* record_kind_words(RecordKind kind);
// What one is counted in: "line", "record", "row".
const char* record_unit(RecordKind kind);

// Thread: one.
class RecordReader {
 public:
  // Errors: open_text's; kConfig, a table whose first row is no list of names.
  static Result<std::unique_ptr<RecordReader>> open(FileSystem& file_system,
                                                    const Document& document,
                                                    ByteSource::Observer observer = {});
  virtual ~RecordReader() = default;
  // The next record, valid until the next call; empty at the end. Of lines those that are blank are
  // passed over.
  // Errors: kConfig, naming file and place: a record above kMaxRecordBytes, bytes that are not
  // UTF-8, an array or a table that is damaged or cut short; append_to's.
  virtual Result<std::string_view> next() = 0;
  int64_t number() const { return number_; }  // of the last one's line, row or record, from 1
  RecordKind kind() const { return kind_; }

 protected:
  explicit RecordReader(RecordKind kind) : kind_(kind) {}
  int64_t number_ = 0;

 private:
  RecordKind kind_;
};

// What the file holds, if it is not read as text: told by its name, else by what its text begins
// with, which is an object of one line, or an array of objects. Errors: open_text's.
struct FoundRecords {
  RecordKind kind;
  std::string first;  // the first record, as the reader gives it; "" where it cannot be read
};
Result<std::optional<FoundRecords>> find_records(FileSystem& file_system, const Document& document);

}  // namespace lockstep::data
