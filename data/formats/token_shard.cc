#include "data/formats/token_shard.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/formats/integer_type.h"

namespace lockstep::data {

namespace {

static_assert(std::endian::native == std::endian::little, "token shards are little-endian");

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t width;  // bytes of a token
  int64_t tokens;
  std::byte reserved[40];
};
static_assert(sizeof(Header) == kShardHeaderBytes);
constexpr char kShardMagic[8] = {'L', 'S', 'T', 'O', 'K', 'E', 'N', 'S'};
constexpr uint32_t kVersion = 2, kOldVersion = 1;  // 1: without a table

bool has_table(const ShardInfo& info) { return info.checksums.block_xxh3.empty(); }

int64_t file_bytes(const ShardInfo& info, int64_t width) {
  const int64_t end = token_offset(info.tokens, width);
  if (!has_table(info)) return end;
  return table_offset(info.tokens, width) +
         block_count(end) * static_cast<int64_t>(sizeof(uint64_t));
}

template <typename Stored, typename Token>
void store(std::span<const Token> tokens, std::byte* out) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto stored = static_cast<Stored>(tokens[i]);
    std::memcpy(out + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

Result<void> check_header(const std::filesystem::path& path, const Header& header,
                          const ShardInfo& info, int64_t width) {
  const auto corrupt = [&](const auto&... parts) {
    return Error{Code::kCorrupt, text(path.string(), ": ", parts...)};
  };
  if (std::memcmp(header.magic, kShardMagic, sizeof(kShardMagic)) != 0)
    return corrupt("it is not a token shard, because it does not start with LSTOKENS");
  if (const uint32_t version = has_table(info) ? kVersion : kOldVersion; header.version != version)
    return corrupt("its shard version is ", header.version, ", but this manifest needs ", version);
  if (header.width != width)
    return corrupt("its header says ", header.width, " bytes a token, but the manifest says ",
                   width);
  if (header.tokens != info.tokens)
    return corrupt("its header says ", header.tokens, " tokens, but the manifest says ",
                   info.tokens);
  return {};
}

Error damaged(const std::filesystem::path& path, const std::string& what) {
  return {Code::kCorrupt,
          text(path.string(), ": ", what,
               "; the file was damaged after prepare. Run `lockstep prepare` again with --force")};
}

}  // namespace

ShardWriter::ShardWriter(std::unique_ptr<File> file, std::string name, int64_t width)
    : file_(std::move(file)), width_(width) {
  info_.file = std::move(name);
  block_.reserve(kShardBlockBytes);
  block_.resize(kShardHeaderBytes);  // filled by seal
}

Result<std::unique_ptr<ShardWriter>> ShardWriter::create(FileSystem& file_system,
                                                         const std::filesystem::path& folder,
                                                         const std::string& name,
                                                         const std::string& dtype) {
  LOCKSTEP_CHECK(token_bytes(dtype) != 0, "dtype ", dtype);
  LOCKSTEP_TRY(std::unique_ptr<File> file, file_system.create(folder / name));
  return std::unique_ptr<ShardWriter>(new ShardWriter(std::move(file), name, token_bytes(dtype)));
}

Result<void> ShardWriter::append(std::span<const uint32_t> tokens) {
  while (!tokens.empty()) {
    const size_t used = block_.size();
    const size_t room =
        (static_cast<size_t>(kShardBlockBytes) - used) / static_cast<size_t>(width_);
    const auto part = tokens.first(std::min(room, tokens.size()));
    block_.resize(used + part.size() * static_cast<size_t>(width_));
    if (width_ == 2) {
      store<uint16_t>(part, block_.data() + used);
    } else {
      store<uint32_t>(part, block_.data() + used);
    }
    info_.tokens += static_cast<int64_t>(part.size());
    tokens = tokens.subspan(part.size());
    if (block_.size() == static_cast<size_t>(kShardBlockBytes))
      LOCKSTEP_RETURN_IF_ERROR(flush_block());
  }
  return {};
}

Result<void> ShardWriter::flush_block() {
  if (table_.empty()) {
    first_block_ = std::move(block_);
    table_.emplace_back();  // seal fills it
    block_ = {};
    block_.reserve(kShardBlockBytes);
    return {};
  }
  const auto offset = static_cast<int64_t>(table_.size()) * kShardBlockBytes;
  table_.push_back(xxh3_64(std::span<const std::byte>(block_)));
  LOCKSTEP_RETURN_IF_ERROR(file_->write_at(block_, offset));
  block_.clear();
  return {};
}

Result<ShardInfo> ShardWriter::seal() {
  if (!block_.empty()) LOCKSTEP_RETURN_IF_ERROR(flush_block());
  Header header{};
  std::memcpy(header.magic, kShardMagic, sizeof(kShardMagic));
  header.version = kVersion;
  header.width = static_cast<uint32_t>(width_);
  header.tokens = info_.tokens;
  std::memcpy(first_block_.data(), &header, sizeof(header));
  table_[0] = xxh3_64(std::span<const std::byte>(first_block_));
  LOCKSTEP_RETURN_IF_ERROR(file_->write_at(first_block_, 0));
  const auto table = std::as_bytes(std::span(table_));
  info_.checksums.table_xxh3 = hex64(xxh3_64(table));
  LOCKSTEP_RETURN_IF_ERROR(file_->write_at(table, table_offset(info_.tokens, width_)));
  LOCKSTEP_RETURN_IF_ERROR(file_->sync());
  return info_;
}

ShardReader::ShardReader(std::unique_ptr<File> file, std::filesystem::path path, ShardInfo info,
                         int64_t width, int64_t vocab_size)
    : file_(std::move(file)),
      path_(std::move(path)),
      info_(std::move(info)),
      width_(width),
      vocab_size_(vocab_size),
      end_(token_offset(info_.tokens, width)),
      block_bytes_(has_table(info_) ? kShardBlockBytes : kOldBlockBytes),
      verified_(static_cast<size_t>(block_count(end_, block_bytes_))) {}

Result<std::unique_ptr<ShardReader>> ShardReader::open(FileSystem& file_system,
                                                       const std::filesystem::path& folder,
                                                       const ShardInfo& info,
                                                       const std::string& dtype,
                                                       int64_t vocab_size) {
  const std::filesystem::path path = folder / info.file;
  const int64_t width = token_bytes(dtype);
  LOCKSTEP_CHECK(width != 0, info.file, " dtype ", dtype);
  auto opened = file_system.open(path);
  if (!opened.ok() && opened.error().code == Code::kNotFound)
    return Error{Code::kCorrupt, text(path.string(), " is missing, but the manifest lists it")};
  LOCKSTEP_TRY(std::unique_ptr<File> file, std::move(opened));
  LOCKSTEP_TRY(const int64_t size, file->size_bytes());
  if (const int64_t wanted = file_bytes(info, width); size != wanted)
    return Error{Code::kCorrupt,
                 text(path.string(), ": ", size, " bytes long, but it must have ", wanted, " for ",
                      info.tokens, " tokens: ", size < wanted ? "truncated" : "it is too long")};
  Header header;
  LOCKSTEP_RETURN_IF_ERROR(file->read_at(std::as_writable_bytes(std::span(&header, 1)), 0));
  LOCKSTEP_RETURN_IF_ERROR(check_header(path, header, info, width));
  return std::unique_ptr<ShardReader>(
      new ShardReader(std::move(file), path, info, width, vocab_size));
}

Result<void> ShardReader::read_table() const {
  if (!has_table(info_) || !table_.empty()) return {};
  std::vector<uint64_t> table(verified_.size());
  const auto bytes = std::as_writable_bytes(std::span(table));
  LOCKSTEP_RETURN_IF_ERROR(file_->read_at(bytes, table_offset(info_.tokens, width_)));
  const std::string actual = hex64(xxh3_64(std::span<const std::byte>(bytes)));
  if (actual != info_.checksums.table_xxh3)
    return damaged(path_, text("the table of checksums at its end has XXH3 ", actual,
                               ", but the manifest says ", info_.checksums.table_xxh3));
  table_ = std::move(table);
  return {};
}

std::string ShardReader::checksum(size_t block) const {
  return has_table(info_) ? hex64(table_[block]) : info_.checksums.block_xxh3[block];
}

Result<void> ShardReader::verify_block(int64_t block) const {
  const auto index = static_cast<size_t>(block);
  if (verified_[index].load(std::memory_order_acquire)) return {};
  std::lock_guard lock(verify_mutex_);
  if (verified_[index].load(std::memory_order_relaxed)) return {};
  LOCKSTEP_RETURN_IF_ERROR(read_table());
  const int64_t begin = block * block_bytes_;
  const int64_t end = std::min(begin + block_bytes_, end_);
  std::vector<std::byte> bytes(static_cast<size_t>(end - begin));
  LOCKSTEP_RETURN_IF_ERROR(file_->read_at(bytes, begin));
  const std::string actual = hex64(xxh3_64(std::span<const std::byte>(bytes)));
  if (actual != checksum(index))
    return damaged(path_, text("block ", block, " (bytes ", begin, " to ", end, ") has XXH3 ",
                               actual, ", but it must have ", checksum(index)));
  verified_[index].store(true, std::memory_order_release);
  return {};
}

Result<void> ShardReader::read(int64_t first, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  LOCKSTEP_CHECK(first >= 0 && first + count <= info_.tokens, "tokens ", first, " + ", count,
                 " of ", info_.tokens, " in ", info_.file);
  if (count == 0) return {};
  const int64_t begin = token_offset(first, width_);
  const int64_t end = begin + count * width_;
  for (int64_t block = begin / block_bytes_; block <= (end - 1) / block_bytes_; ++block)
    LOCKSTEP_RETURN_IF_ERROR(verify_block(block));
  std::vector<std::byte> bytes(static_cast<size_t>(end - begin));
  LOCKSTEP_RETURN_IF_ERROR(file_->read_at(bytes, begin));
  widen(bytes.data(), {width_, /*is_signed=*/false}, out);
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i] >= vocab_size_) [[unlikely]]
      return Error{Code::kCorrupt, text(path_.string(), ": token ", out[i], " at byte offset ",
                                        begin + static_cast<int64_t>(i) * width_,
                                        " is not below the vocabulary size ", vocab_size_)};
  return {};
}

}  // namespace lockstep::data
