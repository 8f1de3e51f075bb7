#include "data/prepare/record_reader.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "data/prepare/text_reader.h"
#include "data/prepare/text_source.h"

namespace lockstep::data {

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// The name's last suffix in small letters, without one of compression.
std::string suffix_of(const std::filesystem::path& path) {
  std::string name = path.filename().string();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::filesystem::path plain = name;
  if (plain.extension() == ".gz" || plain.extension() == ".zst") plain = plain.stem();
  return plain.extension().string();
}

// "[{", with blanks between, as an array of objects begins.
bool begins_array(std::string_view head) {
  const size_t at = head.find_first_not_of(kBlanks);
  if (at == head.npos || head[at] != '[') return false;
  const size_t next = head.find_first_not_of(kBlanks, at + 1);
  return next != head.npos && head[next] == '{';
}

RecordKind kind_of(const std::filesystem::path& path, std::string_view head) {
  const std::string suffix = suffix_of(path);
  if (suffix == ".csv") return RecordKind::kCommas;
  if (suffix == ".tsv") return RecordKind::kTabs;
  return begins_array(head) ? RecordKind::kArray : RecordKind::kLines;
}

// The text, a window of it in memory.
class Window {
 public:
  Window(OpenedText opened, std::filesystem::path path)
      : source_(std::move(opened.source)),
        path_(std::move(path)),
        given_bytes_(opened.skipped_bytes) {}
  std::string_view left() const { return std::string_view(buffer_).substr(begin_); }
  bool ended() const { return ended_; }
  // More of the text behind what is left, or ended().
  Result<void> read() {
    buffer_.erase(0, begin_);
    begin_ = 0;
    const size_t before = buffer_.size();
    LOCKSTEP_RETURN_IF_ERROR(source_->append_to(buffer_));
    ended_ = buffer_.size() == before;
    return {};
  }
  void drop(size_t bytes) {
    begin_ += bytes;
    given_bytes_ += static_cast<int64_t>(bytes);
  }
  // Errors: kConfig, the first `bytes` of what is left are not UTF-8.
  Result<void> check_utf8(size_t bytes) const {
    const std::string_view first = left().substr(0, bytes);
    if (const auto bad = find_invalid_utf8(first))
      return not_utf8(path_, given_bytes_ + static_cast<int64_t>(*bad), first[*bad]);
    return {};
  }
  Error error(const std::string& what) const {
    return Error{Code::kConfig, path_.string() + ": " + what};
  }
  // Errors: kConfig, what is left is longer than a record may be.
  Result<void> check_length(const std::string& place) const {
    if (static_cast<int64_t>(left().size()) <= kMaxRecordBytes) return {};
    return error(text(place, " has more than ", kMaxRecordBytes, " bytes: is this JSON lines?"));
  }

 private:
  std::unique_ptr<ByteSource> source_;
  std::filesystem::path path_;
  std::string buffer_;
  size_t begin_ = 0;
  int64_t given_bytes_ = 0;
  bool ended_ = false;
};

class LineReader final : public RecordReader {
 public:
  explicit LineReader(Window window)
      : RecordReader(RecordKind::kLines), window_(std::move(window)) {}
  Result<std::string_view> next() override {
    window_.drop(taken_);
    taken_ = 0;
    size_t searched = 0;
    while (true) {
      const std::string_view left = window_.left();
      const size_t end = left.find('\n', searched);
      if (end == std::string_view::npos && !window_.ended()) {
        searched = left.size();
        LOCKSTEP_RETURN_IF_ERROR(window_.check_length(text("line ", number_ + 1)));
        LOCKSTEP_RETURN_IF_ERROR(window_.read());
        continue;
      }
      const std::string_view line = left.substr(0, end);
      if (left.empty()) return line;
      LOCKSTEP_RETURN_IF_ERROR(window_.check_utf8(line.size()));
      const size_t whole = end == std::string_view::npos ? line.size() : end + 1;
      ++number_;
      if (line.find_first_not_of(kBlanks) != std::string_view::npos) {
        taken_ = whole;
        return line;
      }
      window_.drop(whole);
      searched = 0;
    }
  }

 private:
  Window window_;
  size_t taken_ = 0;  // of the line that the caller has
};

// Where the object that starts `words` ends; npos: not in them. Goes on where it stopped.
class ObjectEnd {
 public:
  size_t find(std::string_view words) {
    for (; at_ < words.size(); ++at_) {
      const char c = words[at_];
      if (in_string_) {
        if (c == '\\')
          ++at_;
        else if (c == '"')
          in_string_ = false;
      } else if (c == '"') {
        in_string_ = true;
      } else if (c == '{' || c == '[') {
        ++depth_;
      } else if ((c == '}' || c == ']') && --depth_ == 0) {
        return at_ + 1;
      }
    }
    return std::string_view::npos;
  }

 private:
  size_t at_ = 0;
  int depth_ = 0;
  bool in_string_ = false;
};

class ArrayReader final : public RecordReader {
 public:
  explicit ArrayReader(Window window)
      : RecordReader(RecordKind::kArray), window_(std::move(window)) {}
  Result<std::string_view> next() override {
    window_.drop(taken_);
    taken_ = 0;
    if (closed_) return std::string_view();
    LOCKSTEP_TRY(char sign, skip_blanks());
    const bool opens = number_ == 0;  // kind_of has seen "[{"
    if (!opens && sign == ']') return end();
    if (!opens && sign != ',')
      return window_.error(
          text("after record ", number_, " of the array comes neither \",\" nor \"]\""));
    window_.drop(1);
    LOCKSTEP_TRY(sign, skip_blanks());
    if (sign != '{')
      return window_.error(text("record ", number_ + 1, " of the array is no JSON object"));
    return object();
  }

 private:
  // The next byte that is no blank; 0 at the end.
  Result<char> skip_blanks() {
    while (true) {
      const std::string_view left = window_.left();
      const size_t at = left.find_first_not_of(kBlanks);
      window_.drop(std::min(at, left.size()));
      if (at != left.npos) return window_.left().front();
      if (window_.ended()) return '\0';
      LOCKSTEP_RETURN_IF_ERROR(window_.read());
    }
  }
  Result<std::string_view> object() {
    ++number_;
    ObjectEnd end;
    while (true) {
      taken_ = end.find(window_.left());
      if (taken_ != std::string_view::npos) break;
      if (window_.ended())
        return window_.error(text("record ", number_, " of the array is cut short"));
      LOCKSTEP_RETURN_IF_ERROR(window_.check_length(text("record ", number_)));
      LOCKSTEP_RETURN_IF_ERROR(window_.read());
    }
    LOCKSTEP_RETURN_IF_ERROR(window_.check_utf8(taken_));
    return window_.left().substr(0, taken_);
  }
  Result<std::string_view> end() {
    window_.drop(1);
    LOCKSTEP_TRY(const char more, skip_blanks());
    if (more != '\0') return window_.error("text follows the array");
    closed_ = true;
    return std::string_view();
  }

  Window window_;
  size_t taken_ = 0;
  bool closed_ = false;
};

class TableReader final : public RecordReader {
 public:
  TableReader(RecordKind kind, Window window)
      : RecordReader(kind),
        window_(std::move(window)),
        separator_(kind == RecordKind::kTabs ? '\t' : ',') {}

  Result<void> read_names() {
    LOCKSTEP_TRY(const bool found, read_row(names_));
    if (!found) return window_.error("the table is empty");
    const std::set<std::string> all(names_.begin(), names_.end());
    if (all.size() < names_.size() || all.contains(""))
      return window_.error(
          "the first row of the table does not name its columns: a name is empty or comes twice");
    return {};
  }
  Result<std::string_view> next() override {
    std::vector<std::string> values;
    LOCKSTEP_TRY(const bool found, read_row(values));
    if (!found) return std::string_view();
    ++number_;
    if (values.size() != names_.size())
      return window_.error(
          text("row ", number_, " has ", counted(static_cast<int64_t>(values.size()), "value"),
               ", and the table has ", counted(static_cast<int64_t>(names_.size()), "column")));
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (size_t i = 0; i < names_.size(); ++i) object[names_[i]] = std::move(values[i]);
    record_ = object.dump();
    return std::string_view(record_);
  }

 private:
  // False: at the end. A blank line is no row.
  Result<bool> read_row(std::vector<std::string>& values) {
    while (true) {
      LOCKSTEP_TRY(const size_t bytes, find_row_end());
      if (bytes == 0) return false;
      LOCKSTEP_RETURN_IF_ERROR(window_.check_utf8(bytes));
      std::string_view row = window_.left().substr(0, bytes);
      if (row.ends_with('\n')) row.remove_suffix(1);
      if (row.ends_with('\r')) row.remove_suffix(1);
      const bool blank = row.empty();
      if (!blank) LOCKSTEP_RETURN_IF_ERROR(cut(row, values));
      window_.drop(bytes);
      if (!blank) return true;
    }
  }
  // Bytes of the row that comes, with its line end; 0: none comes.
  Result<size_t> find_row_end() {
    size_t at = 0;
    // Inside quotes; at the start of a value; in a value that began with a quote.
    bool quoted = false, starts = true, had_quotes = false;
    while (true) {
      for (const std::string_view left = window_.left(); at < left.size(); ++at) {
        const char c = left[at];
        if (quoted) {
          quoted = c != '"';  // the second of two quotes opens it again
        } else if (c == '"' && (starts || (had_quotes && left[at - 1] == '"'))) {
          quoted = had_quotes = true;
        } else if (c == '\n') {
          return at + 1;
        }
        starts = !quoted && c == separator_;
        had_quotes = had_quotes && !starts;
      }
      if (window_.ended()) {
        if (quoted) return window_.error(text("row ", number_ + 1, ": a quote is not closed"));
        return at;
      }
      LOCKSTEP_RETURN_IF_ERROR(window_.check_length(text("row ", number_ + 1)));
      LOCKSTEP_RETURN_IF_ERROR(window_.read());
    }
  }
  Result<void> cut(std::string_view row, std::vector<std::string>& values) const {
    values.clear();
    for (size_t at = 0; true; ++at) {
      std::string value;
      if (at < row.size() && row[at] == '"') {
        for (++at; row[at] != '"' || row.substr(at + 1).starts_with('"'); ++at) {
          if (row[at] == '"') ++at;
          value += row[at];
        }
        ++at;
        if (at < row.size() && row[at] != separator_)
          return window_.error(text("row ", number_ + 1, ": text follows a closing quote"));
      } else {
        const size_t end = std::min(row.find(separator_, at), row.size());
        value = row.substr(at, end - at);
        at = end;
      }
      values.push_back(std::move(value));
      if (at >= row.size()) return {};
    }
  }

  Window window_;
  const char separator_;
  std::vector<std::string> names_;
  std::string record_;
};

Result<std::unique_ptr<RecordReader>> reader_of(RecordKind kind, Window window) {
  if (kind == RecordKind::kLines)
    return std::unique_ptr<RecordReader>(std::make_unique<LineReader>(std::move(window)));
  if (kind == RecordKind::kArray)
    return std::unique_ptr<RecordReader>(std::make_unique<ArrayReader>(std::move(window)));
  auto table = std::make_unique<TableReader>(kind, std::move(window));
  LOCKSTEP_RETURN_IF_ERROR(table->read_names());
  return std::unique_ptr<RecordReader>(std::move(table));
}

// Whether the first line that is not blank is a JSON object.
bool begins_with_object(std::string_view head) {
  const size_t at = head.find_first_not_of(kBlanks);
  if (at == head.npos || head[at] != '{') return false;
  const std::string_view line = head.substr(at, head.find('\n', at) - at);
  return parse_json<nlohmann::ordered_json>(line, /*allow_exceptions=*/false).is_object();
}

}  // namespace

const char* record_kind_words(RecordKind kind) {
  switch (kind) {
    case RecordKind::kLines: return "JSON lines";
    case RecordKind::kArray: return "a JSON array";
    case RecordKind::kCommas: return "a table of comma-separated values";
    case RecordKind::kTabs: break;
  }
  return "a table of tab-separated values";
}

const char* record_unit(RecordKind kind) {
  return kind == RecordKind::kLines ? "line" : kind == RecordKind::kArray ? "record" : "row";
}

Result<std::unique_ptr<RecordReader>> RecordReader::open(FileSystem& file_system,
                                                         const Document& document,
                                                         ByteSource::Observer observer) {
  LOCKSTEP_TRY(OpenedText opened, open_text(file_system, document, std::move(observer)));
  const RecordKind kind = kind_of(document.path, opened.head);
  return reader_of(kind, Window(std::move(opened), document.path));
}

Result<std::optional<FoundRecords>> find_records(FileSystem& file_system,
                                                 const Document& document) {
  LOCKSTEP_TRY(OpenedText opened, open_text(file_system, document));
  const RecordKind kind = kind_of(document.path, opened.head);
  const std::string suffix = suffix_of(document.path);
  if (kind == RecordKind::kLines && suffix != ".jsonl" && suffix != ".ndjson" &&
      !begins_with_object(opened.head))
    return std::optional<FoundRecords>();
  FoundRecords found{kind, ""};
  const auto reader = reader_of(kind, Window(std::move(opened), document.path));
  if (reader.ok()) {
    const auto first = reader.value()->next();
    if (first.ok()) found.first = first.value();
  }
  return std::optional(std::move(found));
}

}  // namespace lockstep::data
