// JSON lines: one record a line, one document a record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/prepare/byte_source.h"
#include "data/prepare/chat_template.h"

namespace lockstep::data {

inline constexpr int64_t kMaxRecordBytes = int64_t{64} << 20;

// Which fields of a record are the document. One of the three is set.
struct RecordFormat {
  std::string text_field = {};                         // all of it counts in the loss
  std::string prompt_field = {}, response_field = {};  // the response counts
  std::string chat_template = {};  // of a conversation (data/prepare/conversation.h)
  // For the manifest: "text_field text", "chat chatml", …
  std::string description() const;
  // The chat template that a description names; "": it is none of conversations.
  static std::string chat_template_in(const std::string& description);
  bool has_mask() const { return text_field.empty(); }
};

struct Record {
  std::vector<Passage> passages;
  std::string text;  // the fields' own words: what decides the split
};

// `chat` is set when the format has a template.
// Errors: kConfig: no JSON object, a field that is missing or no string, parse_conversation's,
// ChatTemplate::passages'.
Result<Record> parse_record(std::string_view line, const RecordFormat& format,
                            const std::optional<ChatTemplate>& chat);

// Appends the passage's ids. Errors: encode's.
Result<void> encode_passage(const Tokenizer& tokenizer, const Passage& passage,
                            std::vector<uint32_t>& ids);

// The lines of a file. Thread: one.
class LineReader {
 public:
  static Result<LineReader> open(FileSystem& file_system, const Document& document,
                                 ByteSource::Observer observer = {});
  // The next line that is not blank, without its end, valid until the next call; empty at the end.
  // Errors: kConfig, a line above kMaxRecordBytes, bytes that are not UTF-8; append_to's.
  Result<std::string_view> next();
  int64_t line() const { return line_; }  // of the last one, counted from 1

 private:
  LineReader(std::unique_ptr<ByteSource> source, std::filesystem::path path)
      : path_(std::move(path)), source_(std::move(source)) {}
  std::filesystem::path path_;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t begin_ = 0;
  int64_t line_ = 0, given_bytes_ = 0;
  bool ended_ = false;
};

}  // namespace lockstep::data
