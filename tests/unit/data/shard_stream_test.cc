#include "data/formats/token_stream.h"
#include "tests/support/faulty_file_system.h"
#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using test_support::FaultyFileSystem;
using test_support::Op;
using testing::HasSubstr;

namespace fs = std::filesystem;
const fs::path kGolden = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/tokens";

std::vector<int64_t> all_of(const TokenStream& stream) {
  std::vector<int64_t> tokens(static_cast<size_t>(stream.tokens()));
  EXPECT_TRUE(stream.read(0, tokens).ok());
  return tokens;
}

class ShardStreamTest : public testing::Test {
 protected:
  std::unique_ptr<TokenStream> open(const fs::path& folder, const std::string& split = "train") {
    auto manifest = read_manifest(posix_file_system(), folder);
    EXPECT_TRUE(manifest.ok()) << message_of(manifest);
    return open_shards(disk_, folder, *manifest, split);
  }
  test_support::TempDir dir_;
  std::shared_ptr<FaultyFileSystem> disk_ = std::make_shared<FaultyFileSystem>(posix_file_system());
};

// 700 shards, of which 512 may be open: each is opened when it is read, and kept as long as there
// is room.
TEST_F(ShardStreamTest, AShardIsOpenedWhenItIsReadAndAFewHundredStayOpen) {
  constexpr int64_t kShards = 700, kOpen = 512, kTokens = 20;
  const std::string contents = some_text(3, 300).substr(0, kShards * kTokens - 1);
  write_text(dir_ / "in/a.txt", contents);
  PrepareOptions options = options_for(dir_ / "in", dir_ / "out");
  options.val_millionths = 0;
  options.shard_tokens = kTokens;
  ASSERT_TRUE(prepare_bytes(options).ok());
  const auto stream = open(dir_ / "out");
  EXPECT_EQ(disk_->calls(Op::kOpen), 0);
  ASSERT_EQ(stream->tokens(), kShards * kTokens);
  int64_t token = -1;
  const auto read = [&](int64_t shard) {
    ASSERT_TRUE(stream->read(shard * kTokens, std::span(&token, 1)).ok());
    ASSERT_EQ(token, static_cast<unsigned char>(contents[static_cast<size_t>(shard * kTokens)]));
  };
  for (int64_t shard = 0; shard < kOpen; ++shard) read(shard);
  EXPECT_EQ(disk_->calls(Op::kOpen), kOpen);
  for (int64_t shard = kOpen - 1; shard >= 0; --shard) read(shard);
  EXPECT_EQ(disk_->calls(Op::kOpen), kOpen);
  read(kShards - 1);  // in the place of the one that was read longest ago, the last of the loop's
  EXPECT_EQ(disk_->calls(Op::kOpen), kOpen + 1);
  read(0);
  EXPECT_EQ(disk_->calls(Op::kOpen), kOpen + 1);
  read(kOpen - 1);
  EXPECT_EQ(disk_->calls(Op::kOpen), kOpen + 2);
}

std::string old_records() {
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    lines += text("{\"prompt\": \"What is ", i, " and ", i, "?\", \"response\": \"It is ", 2 * i,
                  ", as ", i, " is taken twice.");
    for (int k = 0; k < i % 7; ++k) lines += " Again.";
    lines += "\"}\n";
  }
  return lines;
}

// tests/golden/tokens has folders that earlier versions made; each version reads them as it reads
// what it makes itself from the same input.
class OldTokens : public ShardStreamTest, public testing::WithParamInterface<const char*> {};

TEST_P(OldTokens, AreReadAsNewOnes) {
  const std::string version = GetParam();
  const fs::path old = kGolden / version;
  PrepareOptions options = options_for(dir_ / "in", dir_ / "out");
  if (version == "v1") {
    std::string lines;
    for (int i = 0; i < 400; ++i) lines += text("line ", i, " of a text for token shards\n");
    write_text(dir_ / "in/t.txt", lines);
    options.shard_tokens = 6000;
    options.val_millionths = 0;
  } else {
    write_text(dir_ / "in/c.jsonl", old_records());
    options.records = RecordFormat{.prompt_field = "prompt", .response_field = "response"};
    options.shard_tokens = version == "v2" ? 2000 : kDefaultShardTokens;
    options.pack_seq_len = version == "v3" ? 64 : 0;
  }
  auto report = prepare_bytes(options);
  ASSERT_TRUE(report.ok()) << message_of(report);
  EXPECT_EQ(report->manifest.recipe, read_manifest(posix_file_system(), old)->recipe);
  for (const char* split : {"train", "val"}) {
    const auto was = open(old, split), is = open(dir_ / "out", split);
    const std::vector<int64_t> tokens = all_of(*was);
    EXPECT_EQ(tokens, all_of(*is));
    std::vector<int64_t> labels = tokens, new_labels = tokens;
    ASSERT_TRUE(was->mask(0, labels).ok() && is->mask(0, new_labels).ok());
    EXPECT_EQ(labels, new_labels);
    EXPECT_EQ(labels == tokens, version == "v1");
    std::vector<int64_t> starts(tokens.size()), new_starts(tokens.size());
    ASSERT_TRUE(was->document_starts(0, starts).ok() && is->document_starts(0, new_starts).ok());
    EXPECT_EQ(starts, new_starts);
    if (version == "v1") break;  // nothing was held out
  }
}
INSTANTIATE_TEST_SUITE_P(Versions, OldTokens, testing::Values("v1", "v2", "v3"));

TEST_F(ShardStreamTest, ADamagedBlockOfAnOldShardIsNamed) {
  fs::copy(kGolden / "v1", dir_ / "old");
  auto file = posix_file_system().open(dir_ / "old/train_00001.tokens");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file.value()->write_at(as_bytes("\x7f"), 2000).ok());
  std::vector<int64_t> tokens(100);
  const auto read = open(dir_ / "old")->read(7000, tokens);
  EXPECT_THAT(message_of(read), HasSubstr("train_00001.tokens: block 0 (bytes 0 to 12064) has"));
}

}  // namespace
}  // namespace lockstep::data
