#include "data/prepare/text_reader.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/text.h"
#include "data/formats/manifest.h"
#include "data/prepare/text_source.h"

namespace lockstep::data {

namespace {

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

// Whether `next`, the rest of a window, may begin with white space: of other letters than ASCII, by
// its first bytes. Tokenizers join white space to what is before it.
bool may_be_space(std::string_view next) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r\xc2\xe1\xe2";
  return kSpaces.find(next.front()) != std::string_view::npos || next.starts_with("\xe3\x80\x80");
}

// Where the segment that starts `window` ends; window[kSegmentBytes] exists. Before " x" and after
// a line end that no white space follows, a tokenizer joins nothing.
size_t cut_of(std::string_view window) {
  const auto limit = static_cast<size_t>(kSegmentBytes);
  for (const char sign : {'\n', ' '})
    for (size_t at = window.rfind(sign, limit - 1); at != window.npos && at > 0;
         at = window.rfind(sign, at - 1))
      if (!may_be_space(window.substr(at + 1)) &&
          (sign == '\n' || !may_be_space(window.substr(at - 1))))
        return sign == '\n' ? at + 1 : at;
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

// Files that say what a folder of data is, as the Hugging Face Hub and `datasets` write them.
bool is_about_data(const std::string& name) {
  return name == "README.md" || name == "dataset_info.json" || name == "dataset_infos.json" ||
         name == "dataset_dict.json";
}

// `path` is a file, or a folder `depth` folders below an input.
Result<void> add_path(FileSystem& file_system, const std::filesystem::path& path, int depth,
                      DocumentList& list) {
  const auto names = file_system.list(path);
  if (!names.ok()) {
    if (names.error().code != Code::kNotFound) return names.error();
    if (depth > 0 && is_about_data(path.filename().string())) {
      list.passed_over.push_back(path);
      return {};
    }
    return add_file(file_system, path, list.documents);  // there, but not a folder
  }
  if (depth > kMaxFolderDepth)
    return Error{Code::kConfig, text(path.string(), ": more than ", kMaxFolderDepth,
                                     " folders deep: a loop of links?")};
  for (const std::string& name : names.value())
    if (!name.starts_with('.'))
      LOCKSTEP_RETURN_IF_ERROR(add_path(file_system, path / name, depth + 1, list));
  return {};
}

}  // namespace

Result<DocumentList> list_inputs(FileSystem& file_system,
                                 const std::vector<std::filesystem::path>& inputs) {
  DocumentList list;
  for (const std::filesystem::path& input : inputs) {
    if (!file_system.exists(input))
      return Error{Code::kNotFound, text(input.string(), ": no such file or folder")};
    const size_t before = list.documents.size();
    LOCKSTEP_RETURN_IF_ERROR(add_path(file_system, input, 0, list));
    if (list.documents.size() == before)
      return Error{Code::kConfig, text(input.string(), ": no file in this folder")};
  }
  return list;
}

Result<std::vector<Document>> list_documents(FileSystem& file_system,
                                             const std::vector<std::filesystem::path>& inputs) {
  LOCKSTEP_TRY(DocumentList list, list_inputs(file_system, inputs));
  return std::move(list.documents);
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

Error not_utf8(const std::filesystem::path& path, int64_t byte_offset, char byte) {
  return Error{Code::kConfig,
               text(path.string(), ": not UTF-8 at byte offset ", byte_offset, " (byte 0x",
                    std::hex, static_cast<unsigned>(static_cast<unsigned char>(byte)), std::dec,
                    "); convert it first, for example: iconv -f latin1 -t utf-8")};
}

std::string_view end_of_segment(std::string_view segment) {
  constexpr size_t kLongest = 256;
  size_t from = segment.size() - std::min(segment.size(), kLongest);
  while (from < segment.size() && is_continuation(byte_at(segment, from))) ++from;
  std::string_view end = segment.substr(from);
  const size_t line = end.find_last_not_of('\n');
  const size_t start = line == end.npos ? end.npos : end.rfind('\n', line);
  return start == end.npos ? end : end.substr(start + 1);
}

Result<SegmentReader> SegmentReader::open(FileSystem& file_system, const Document& document,
                                          ByteSource::Observer observer) {
  LOCKSTEP_TRY(OpenedText opened, open_text(file_system, document, std::move(observer)));
  return SegmentReader(std::move(opened), document.path);
}

Result<std::string_view> SegmentReader::next() {
  const auto needed = static_cast<size_t>(kSegmentBytes) + 1;
  if (!ended_ && buffer_.size() - begin_ < needed) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    while (!ended_ && buffer_.size() < needed) {
      const size_t before = buffer_.size();
      LOCKSTEP_RETURN_IF_ERROR(source_->append_to(buffer_));
      ended_ = buffer_.size() == before;
    }
  }
  const std::string_view window = std::string_view(buffer_).substr(begin_);
  const std::string_view segment =
      window.substr(0, window.size() < needed ? window.size() : cut_of(window));
  if (const auto bad = find_invalid_utf8(segment))
    return not_utf8(path_, given_bytes_ + static_cast<int64_t>(*bad), segment[*bad]);
  begin_ += segment.size();
  given_bytes_ += static_cast<int64_t>(segment.size());
  return segment;
}

}  // namespace lockstep::data
