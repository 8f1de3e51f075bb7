// Megatron-LM's PREFIX.idx (megatron/core/datasets/indexed_dataset.py), little-endian:
//   0 "MMIDIDX\0\0" · 9 u64 version = 1 · 17 u8 type of a token · 18 u64 N sequences
//   26 u64 D = documents + 1 · 34 i32[N] lengths in tokens · i64[N] byte offsets in the .bin
//   i64[D] first sequence of each document, at last N · i8[N] modes, in multimodal files only
// Nothing is aligned. The offsets follow from the lengths; both are read, and must agree.
#include <algorithm>
#include <cstring>
#include <optional>

#include "base/hash.h"
#include "base/text.h"
#include "data/formats/foreign_tokens.h"

namespace lockstep::data {
namespace {

constexpr int64_t kHeaderBytes = 34;
constexpr size_t kIndexMagicBytes = 9;
constexpr char kIndexMagic[kIndexMagicBytes] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr int64_t kReadEntries = 1 << 14;  // at once
constexpr int64_t kMaxEntries = int64_t{1} << 40;

template <typename T>
T value_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::optional<IntegerType> type_of_code(uint8_t code) {
  switch (code) {
    case 1: return IntegerType{1, false};
    case 2: return IntegerType{1, true};
    case 3: return IntegerType{2, true};
    case 4: return IntegerType{4, true};
    case 5: return IntegerType{8, true};
    case 8: return IntegerType{2, false};
    default: return std::nullopt;  // 6 and 7 are floating point
  }
}

class IndexReader {
 public:
  IndexReader(File& file, std::filesystem::path path) : file_(file), path_(std::move(path)) {}

  Result<TokenRun> run() {
    LOCKSTEP_RETURN_IF_ERROR(read_header());
    LOCKSTEP_RETURN_IF_ERROR(read_sequences());
    LOCKSTEP_RETURN_IF_ERROR(read_documents());
    return TokenRun{{}, type_, 0, tokens_, hex64(hash_.digest())};
  }

 private:
  template <typename... Parts>
  Error wrong(const Parts&... parts) const {
    return {Code::kConfig, text(path_.string(), ": ", parts...)};
  }

  Result<void> read_header() {
    LOCKSTEP_TRY(const int64_t size, file_.size_bytes());
    std::vector<std::byte> header(kHeaderBytes);
    if (size < kHeaderBytes)
      return wrong(size, " bytes are fewer than its header; was the file truncated?");
    LOCKSTEP_RETURN_IF_ERROR(file_.read_at(header, 0));
    if (std::memcmp(header.data(), "TNTIDX", 6) == 0)
      return wrong(
          "it has fairseq's old index format TNTIDX; preprocess the data again with a current "
          "Megatron-LM");
    if (std::memcmp(header.data(), kIndexMagic, kIndexMagicBytes) != 0)
      return wrong("it does not start with Megatron's magic bytes MMIDIDX");
    const auto version = value_at<uint64_t>(header.data() + 9);
    if (version != 1)
      return wrong("it has version ", version, " at byte offset 9; only version 1 is supported");
    const auto code = value_at<uint8_t>(header.data() + 17);
    const auto type = type_of_code(code);
    if (!type)
      return wrong("its type code ", int{code}, " at byte offset 17 is not an integer type");
    type_ = *type;
    sequences_ = value_at<int64_t>(header.data() + 18);
    boundaries_ = value_at<int64_t>(header.data() + 26);
    if (sequences_ < 1 || sequences_ > kMaxEntries || boundaries_ < 1 || boundaries_ > kMaxEntries)
      return wrong("impossible counts: ", sequences_, " sequences and ", boundaries_,
                   " document boundaries (at byte "
                   "offsets 18 and 26)");
    const int64_t whole = kHeaderBytes + 12 * sequences_ + 8 * boundaries_;
    if (size != whole && size != whole + sequences_)
      return wrong(size, " bytes long, but it must have ", whole, " for ", sequences_,
                   " sequences and ", boundaries_,
                   " document boundaries: ", size < whole ? "truncated" : "it is too long");
    hash_.update(header);
    return {};
  }

  Result<void> read_sequences() {
    std::vector<std::byte> lengths, offsets;
    for (int64_t first = 0; first < sequences_; first += kReadEntries) {
      const int64_t count = std::min(kReadEntries, sequences_ - first);
      const int64_t lengths_at = kHeaderBytes + 4 * first;
      const int64_t offsets_at = kHeaderBytes + 4 * sequences_ + 8 * first;
      lengths.resize(static_cast<size_t>(4 * count));
      offsets.resize(static_cast<size_t>(8 * count));
      LOCKSTEP_RETURN_IF_ERROR(file_.read_at(lengths, lengths_at));
      LOCKSTEP_RETURN_IF_ERROR(file_.read_at(offsets, offsets_at));
      hash_.update(lengths);
      for (int64_t i = 0; i < count; ++i) {
        const auto length = value_at<int32_t>(lengths.data() + 4 * i);
        const auto offset = value_at<int64_t>(offsets.data() + 8 * i);
        if (length < 0)
          return wrong("sequence ", first + i, " has ", length, " tokens (at byte offset ",
                       lengths_at + 4 * i, ")");
        if (offset != tokens_ * type_.bytes)
          return wrong("sequence ", first + i, " begins at byte ", offset,
                       " of the .bin (at byte "
                       "offset ",
                       offsets_at + 8 * i, "), but the lengths before it say ",
                       tokens_ * type_.bytes);
        tokens_ += length;
      }
    }
    return tokens_ > 0 ? Result<void>() : wrong("it has no tokens");
  }

  Result<void> read_documents() {
    std::vector<std::byte> entries;
    int64_t before = 0;
    for (int64_t first = 0; first < boundaries_; first += kReadEntries) {
      const int64_t count = std::min(kReadEntries, boundaries_ - first);
      const int64_t at = kHeaderBytes + 12 * sequences_ + 8 * first;
      entries.resize(static_cast<size_t>(8 * count));
      LOCKSTEP_RETURN_IF_ERROR(file_.read_at(entries, at));
      hash_.update(entries);
      for (int64_t i = 0; i < count; ++i) {
        const auto sequence = value_at<int64_t>(entries.data() + 8 * i);
        const bool last = first + i + 1 == boundaries_;
        if (sequence < before || (last && sequence != sequences_))
          return wrong("document boundary ", sequence, " at byte offset ", at + 8 * i, ", after ",
                       before, "; boundaries must rise to the number of sequences, ", sequences_);
        before = sequence;
      }
    }
    return {};
  }

  File& file_;
  const std::filesystem::path path_;
  IntegerType type_;
  int64_t sequences_ = 0, boundaries_ = 0, tokens_ = 0;
  Xxh3Stream hash_;  // of the header, the lengths and the documents
};

}  // namespace

Result<TokenRun> read_megatron_index(FileSystem& file_system, const std::filesystem::path& bin) {
  std::filesystem::path path = bin;
  path.replace_extension(".idx");
  auto opened = file_system.open(path);
  if (!opened.ok() && opened.error().code == Code::kNotFound)
    return Error{Code::kConfig, text(path.string(), " is missing; ", bin.string(),
                                     " cannot be read without its index in the same folder")};
  LOCKSTEP_TRY(const std::unique_ptr<File> file, std::move(opened));
  LOCKSTEP_TRY(TokenRun run, IndexReader(*file, path).run());
  run.path = bin;
  return run;
}

}  // namespace lockstep::data
