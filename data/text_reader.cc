#include "data/text_reader.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/text.h"
#include "data/manifest.h"

namespace lockstep::data {

namespace {

constexpr int64_t kReadBytes = int64_t{1} << 20;
static_assert(kReadBytes > kSegmentBytes);

unsigned char byte_at(std::string_view bytes, size_t i) {
  return static_cast<unsigned char>(bytes[i]);
}
bool is_continuation(unsigned char byte) { return (byte & 0xc0) == 0x80; }

// Length of the valid sequence that starts at `i`, or 0.
size_t sequence_length(std::string_view bytes, size_t i) {
  const unsigned char lead = byte_at(bytes, i);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                        : lead >= 0xe0 && lead <= 0xef ? 3
                        : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                       : 0;
  if (length == 0 || i + length > bytes.size()) return 0;
  for (size_t k = 1; k < length; ++k)
    if (!is_continuation(byte_at(bytes, i + k))) return 0;
  const unsigned char second = byte_at(bytes, i + 1);
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool surrogate = lead == 0xed && second > 0x9f;
  const bool too_large = lead == 0xf4 && second > 0x8f;
  return overlong || surrogate || too_large ? 0 : length;
}

bool eight_ascii(const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return (word & 0x8080808080808080ULL) == 0;
}

// Where the segment that starts `window` ends; window[kSegmentBytes] exists.
size_t cut_of(std::string_view window) {
  const auto limit = static_cast<size_t>(kSegmentBytes);
  const size_t newline = window.substr(0, limit).rfind('\n');
  if (newline != std::string_view::npos) return newline + 1;
  size_t cut = limit;
  while (cut > limit - 3 && is_continuation(byte_at(window, cut))) --cut;
  return cut;
}

Result<void> add_file(FileSystem& file_system, const std::filesystem::path& path,
                      std::vector<Document>& documents) {
  if (path.native().ends_with(kShardSuffix))
    return Error{
        Code::kConfig,
        text(path.string(), ": a token shard, not text; does --out lie inside the input?")};
  LOCKSTEP_TRY(const std::unique_ptr<File> file, file_system.open(path));
  LOCKSTEP_TRY(const int64_t size, file->size_bytes());
  if (size == 0) return Error{Code::kConfig, text(path.string(), ": the file is empty")};
  documents.push_back({path, size});
  return {};
}

// `path` is a file, or a folder `depth` folders below an input.
Result<void> add_path(FileSystem& file_system, const std::filesystem::path& path, int depth,
                      std::vector<Document>& documents) {
  const auto names = file_system.list(path);
  if (!names.ok()) {
    if (names.error().code != Code::kNotFound) return names.error();
    return add_file(file_system, path, documents);  // there, but not a folder
  }
  if (depth > kMaxFolderDepth)
    return Error{Code::kConfig, text(path.string(), ": more than ", kMaxFolderDepth,
                                     " folders deep: a loop of links?")};
  for (const std::string& name : names.value())
    if (!name.starts_with('.'))
      LOCKSTEP_RETURN_IF_ERROR(add_path(file_system, path / name, depth + 1, documents));
  return {};
}

}  // namespace

Result<std::vector<Document>> list_documents(FileSystem& file_system,
                                             const std::vector<std::filesystem::path>& inputs) {
  std::vector<Document> documents;
  for (const std::filesystem::path& input : inputs) {
    if (!file_system.exists(input))
      return Error{Code::kNotFound, text(input.string(), ": no such file or folder")};
    const size_t before = documents.size();
    LOCKSTEP_RETURN_IF_ERROR(add_path(file_system, input, 0, documents));
    if (documents.size() == before)
      return Error{Code::kConfig, text(input.string(), ": no file in this folder")};
  }
  return documents;
}

std::optional<size_t> find_invalid_utf8(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    if (bytes.size() - i >= 8 && eight_ascii(bytes.data() + i)) {
      i += 8;
      continue;
    }
    const size_t length = sequence_length(bytes, i);
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

Result<SegmentReader> SegmentReader::open(FileSystem& file_system, Document document) {
  LOCKSTEP_TRY(std::unique_ptr<File> file, file_system.open(document.path));
  LOCKSTEP_TRY(const int64_t size, file->size_bytes());
  if (size != document.size_bytes)
    return Error{Code::kConfig,
                 text(document.path.string(), ": ", size, " bytes now, ", document.size_bytes,
                      " a moment ago: it changes while it is read")};
  return SegmentReader(std::move(file), std::move(document));
}

Result<void> SegmentReader::fill() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  const size_t kept = buffer_.size();
  const auto wanted = static_cast<size_t>(std::min(kReadBytes, document_.size_bytes - read_bytes_));
  buffer_.resize(kept + wanted);
  const auto target = std::as_writable_bytes(std::span(buffer_).subspan(kept));
  LOCKSTEP_RETURN_IF_ERROR(file_->read_at(target, read_bytes_));
  read_bytes_ += static_cast<int64_t>(wanted);
  return {};
}

Result<std::string_view> SegmentReader::next() {
  const int64_t left = document_.size_bytes - given_bytes_;
  const int64_t needed = std::min(left, kSegmentBytes + 1);
  if (static_cast<int64_t>(buffer_.size() - begin_) < needed) LOCKSTEP_RETURN_IF_ERROR(fill());
  const std::string_view window = std::string_view(buffer_).substr(begin_);
  LOCKSTEP_CHECK(static_cast<int64_t>(window.size()) >= needed, window.size(), " < ", needed);
  const size_t cut = left <= kSegmentBytes ? static_cast<size_t>(left) : cut_of(window);
  const std::string_view segment = window.substr(0, cut);
  if (const auto bad = find_invalid_utf8(segment)) {
    const auto value = static_cast<unsigned>(byte_at(segment, *bad));
    return Error{Code::kConfig,
                 text(document_.path.string(), ": not UTF-8 at byte offset ",
                      given_bytes_ + static_cast<int64_t>(*bad), " (byte 0x", std::hex, value,
                      std::dec, "); convert it first, for example: iconv -f latin1 -t utf-8")};
  }
  begin_ += cut;
  given_bytes_ += static_cast<int64_t>(cut);
  return segment;
}

}  // namespace lockstep::data
