#include "data/formats/token_shard.h"

#include <cstring>

#include "tests/support/faulty_file_system.h"
#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using test_support::FaultyFileSystem;
using test_support::Op;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class TokenShardTest : public testing::Test {
 protected:
  static constexpr int64_t kVocab = 1000;
  // Token i of a shard is i % kVocab.
  ShardInfo write_shard(const std::string& name, int64_t count, const std::string& dtype) {
    auto writer = ShardWriter::create(posix_file_system(), dir_.path(), name, dtype);
    EXPECT_TRUE(writer.ok());
    std::vector<uint32_t> tokens(static_cast<size_t>(count));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i % kVocab);
    for (size_t at = 0; at < tokens.size(); at += 77777)  // pieces that straddle blocks
      EXPECT_TRUE(
          writer.value()
              ->append(std::span(tokens).subspan(at, std::min<size_t>(77777, tokens.size() - at)))
              .ok());
    auto info = writer.value()->seal();
    EXPECT_TRUE(info.ok()) << message_of(info);
    return info.value();
  }
  auto open(FileSystem& disk, const ShardInfo& info, const std::string& dtype = "u16",
            int64_t vocab_size = kVocab) {
    return ShardReader::open(disk, dir_.path(), info, dtype, vocab_size);
  }
  // Writes `bytes` over the file at `offset`.
  void overwrite(const std::string& name, int64_t offset, std::string_view bytes) {
    auto file = posix_file_system().open(dir_ / name);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file.value()->write_at(as_bytes(bytes), offset).ok());
  }
  test_support::TempDir dir_;
};

TEST_F(TokenShardTest, WhatIsWrittenComesBackInBothWidths) {
  const int64_t exactly_one_block_u16 = (kShardBlockBytes - kShardHeaderBytes) / 2;
  for (const std::string dtype : {"u16", "u32"}) {
    for (int64_t count : {int64_t{1}, int64_t{1000}, exactly_one_block_u16 - 1,
                          exactly_one_block_u16, exactly_one_block_u16 + 1, int64_t{1500000}}) {
      const ShardInfo info = write_shard("s", count, dtype);
      EXPECT_EQ(info.tokens, count);
      auto reader = open(posix_file_system(), info, dtype);
      ASSERT_TRUE(reader.ok()) << message_of(reader);
      std::vector<int64_t> tokens(static_cast<size_t>(count));
      ASSERT_TRUE(reader.value()->read(0, tokens).ok());
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(tokens[static_cast<size_t>(i)], i % kVocab);
      int64_t last = -1;
      ASSERT_TRUE(reader.value()->read(count - 1, std::span(&last, 1)).ok());
      EXPECT_EQ(last, (count - 1) % kVocab);
    }
  }
}

// The format page shows these bytes; a change needs a new version.
TEST_F(TokenShardTest, BytesAreGolden) {
  const ShardInfo info = write_shard("s", 3, "u16");
  std::string expected("LSTOKENS\x02\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0", 24);
  expected += std::string(40, '\0') + std::string("\0\0\x01\0\x02\0", 6);
  const uint64_t checksum = xxh3_64(expected);
  std::string table(8, '\0');
  std::memcpy(table.data(), &checksum, sizeof checksum);
  EXPECT_EQ(contents_of(dir_ / "s"), expected + std::string(2, '\0') + table);
  EXPECT_EQ(info.checksums.table_xxh3, hex64(xxh3_64(table)));
}

TEST_F(TokenShardTest, EachBlockIsVerifiedOnce) {
  const ShardInfo info = write_shard("s", 1500000, "u16");  // 46 blocks
  FaultyFileSystem disk(posix_file_system());
  auto reader = open(disk, info);
  ASSERT_TRUE(reader.ok());
  disk.set_plan({});
  std::vector<int64_t> tokens(100);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(reader.value()->read(500, tokens).ok());
    ASSERT_TRUE(reader.value()->read(1400000, tokens).ok());
  }
  EXPECT_EQ(disk.calls(Op::kRead), 6 + 2 + 1);  // the table once
}

TEST_F(TokenShardTest, AFlippedByteIsNamedByBlockEveryTime) {
  const ShardInfo info = write_shard("s", 1500000, "u16");
  overwrite("s", kShardBlockBytes + 4321, "\xff");
  auto reader = open(posix_file_system(), info);
  ASSERT_TRUE(reader.ok());
  std::vector<int64_t> tokens(100);
  EXPECT_TRUE(reader.value()->read(0, tokens).ok());  // another block
  for (int round = 0; round < 2; ++round) {
    const auto read = reader.value()->read(kShardBlockBytes / 2 + 100, tokens);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Code::kCorrupt);
    EXPECT_THAT(read.error().message, StartsWith((dir_ / "s").string()));
    EXPECT_THAT(read.error().message, HasSubstr("block 1 (bytes 65536 to 131072) has XXH3 "));
    EXPECT_THAT(read.error().message, HasSubstr(", but it must have "));
    EXPECT_THAT(read.error().message, HasSubstr("Run `lockstep prepare` again with --force"));
  }
}

TEST_F(TokenShardTest, ADamagedTableIsNamedAndNotTakenForDamagedTokens) {
  const ShardInfo info = write_shard("s", 1500000, "u16");
  overwrite("s", table_offset(1500000, 2) + 11, "\x80\x81");
  auto reader = open(posix_file_system(), info);
  ASSERT_TRUE(reader.ok());
  std::vector<int64_t> tokens(100);
  for (int round = 0; round < 2; ++round) {
    const auto read = reader.value()->read(0, tokens);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Code::kCorrupt);
    EXPECT_THAT(read.error().message, HasSubstr("/s: the table of checksums at its end has XXH3 "));
    EXPECT_THAT(read.error().message, HasSubstr("the manifest says " + info.checksums.table_xxh3));
  }
}

TEST_F(TokenShardTest, ATokenOutsideTheVocabularyIsNamedByFileAndOffset) {
  const ShardInfo info = write_shard("s", 500, "u16");
  auto reader = open(posix_file_system(), info, "u16", 400);
  ASSERT_TRUE(reader.ok());
  std::vector<int64_t> tokens(100);
  EXPECT_TRUE(reader.value()->read(300, tokens).ok());
  const auto read = reader.value()->read(350, tokens);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Code::kCorrupt);
  EXPECT_EQ(read.error().message,
            (dir_ / "s").string() +
                ": token 400 at byte offset 864 is not below the vocabulary size 400");
}

TEST_F(TokenShardTest, OpeningChecksLengthAndHeader) {
  ShardInfo info = write_shard("s", 500, "u16");
  const auto failure = [&] {
    const auto reader = open(posix_file_system(), info);
    EXPECT_FALSE(reader.ok());
    EXPECT_TRUE(reader.ok() || reader.error().code == Code::kCorrupt);
    return message_of(reader);
  };
  info.tokens = 501;
  EXPECT_EQ(failure(), (dir_ / "s").string() +
                           ": 1072 bytes long, but it must have 1080 for 501 tokens: truncated");
  info.tokens = 496;
  EXPECT_THAT(failure(),
              HasSubstr("1072 bytes long, but it must have 1064 for 496 tokens: it is too long"));
  info.tokens = 500;
  overwrite("s", 16, "\x01");
  EXPECT_THAT(failure(), HasSubstr("header says 257 tokens, but the manifest says 500"));
  overwrite("s", 12, "\x04");
  EXPECT_THAT(failure(), HasSubstr("header says 4 bytes a token, but the manifest says 2"));
  overwrite("s", 8, "\x09");
  EXPECT_THAT(failure(), HasSubstr("shard version is 9, but this manifest needs 2"));
  overwrite("s", 0, "X");
  EXPECT_THAT(failure(), HasSubstr("does not start with LSTOKENS"));
  std::filesystem::remove(dir_ / "s");
  EXPECT_EQ(failure(), (dir_ / "s").string() + " is missing, but the manifest lists it");
}

}  // namespace
}  // namespace lockstep::data
