#include "data/formats/foreign_tokens.h"

#include "data/formats/npy_file.h"
#include "tests/unit/data/foreign_files.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class ForeignTokensTest : public testing::Test {
 protected:
  static constexpr int64_t kVocab = 300;
  auto open(DataKind kind, const std::string& name, const std::string& split = "train") {
    return ForeignTokens::open(posix_file_system(), kind, dir_ / name, split, kVocab);
  }
  // What is said of the file `name`, after its path.
  std::string fault(DataKind kind, const std::string& name) {
    const auto opened = open(kind, name);
    EXPECT_TRUE(!opened.ok() && opened.error().code == Code::kConfig) << message_of(opened);
    const std::string path = (dir_ / name).string() + ": ";
    EXPECT_THAT(message_of(opened), StartsWith(path));
    return message_of(opened).substr(std::min(path.size(), message_of(opened).size()));
  }
  void expect_counting(DataKind kind, const std::string& name, int64_t count) {
    const auto stream = open(kind, name);
    ASSERT_TRUE(stream.ok()) << message_of(stream);
    ASSERT_EQ(stream.value()->tokens(), count);
    std::vector<int64_t> all(static_cast<size_t>(count));
    ASSERT_TRUE(stream.value()->read(0, all).ok());
    EXPECT_EQ(all, counting_tokens(count, kVocab));
    std::vector<int64_t> few(7);
    ASSERT_TRUE(stream.value()->read(count - 7, few).ok());
    EXPECT_EQ(few, std::vector<int64_t>(all.end() - 7, all.end()));
  }
  std::string hash(DataKind kind, const std::string& name) {
    const auto stream = open(kind, name);
    EXPECT_TRUE(stream.ok()) << message_of(stream);
    return stream.value()->hash().value();
  }
  const std::vector<int64_t> tokens_ = counting_tokens(1000, kVocab);
  test_support::TempDir dir_;
};

TEST_F(ForeignTokensTest, LlmcInBothVersions) {
  write_text(dir_ / "a.bin", llmc_file(tokens_));
  write_text(dir_ / "b.bin", llmc_file(tokens_, /*gpt2=*/false));
  expect_counting(DataKind::kLlmc, "a.bin", 1000);
  expect_counting(DataKind::kLlmc, "b.bin", 1000);
}

TEST_F(ForeignTokensTest, WhatIsWrongInAnLlmcFileIsNamed) {
  const std::string good = llmc_file(tokens_);
  const auto fault_of = [&](std::string contents) {
    write_text(dir_ / "a.bin", contents);
    std::filesystem::resize_file(dir_ / "a.bin", contents.size());
    return fault(DataKind::kLlmc, "a.bin");
  };
  EXPECT_EQ(fault_of(good.substr(0, 2000)),
            "2000 bytes long, but it must have 3024 for the 1000 tokens of its header: truncated");
  EXPECT_THAT(fault_of(good + "xx"), EndsWith("it is too long"));
  EXPECT_THAT(fault_of(good.substr(0, 1000)), HasSubstr("fewer than llm.c's header"));
  EXPECT_THAT(fault_of(std::string(3024, 'x')), HasSubstr("magic number"));
  std::string other = good;
  other[4] = 2;
  EXPECT_EQ(fault_of(other),
            "it has version 2 at byte offset 4; with magic number 20240520 this program "
            "reads version 1");
  const int32_t evaluation = 20240522, negative = -5;
  other = good;
  other.replace(0, 4, reinterpret_cast<const char*>(&evaluation), 4);
  EXPECT_THAT(fault_of(other), HasSubstr("multiple-choice"));
  other = good;
  other.replace(8, 4, reinterpret_cast<const char*>(&negative), 4);
  EXPECT_THAT(fault_of(other), HasSubstr("-5 tokens"));
}

TEST_F(ForeignTokensTest, NanogptIsPlain) {
  write_text(dir_ / "a.bin", bytes_of<uint16_t>(tokens_));
  expect_counting(DataKind::kNanogpt, "a.bin", 1000);
  write_text(dir_ / "odd.bin", bytes_of<uint16_t>(tokens_) + "x");
  EXPECT_EQ(fault(DataKind::kNanogpt, "odd.bin"),
            "2001 bytes are not a whole number of 2-byte tokens; was the file truncated?");
  write_text(dir_ / "llmc.bin", llmc_file(tokens_));
  EXPECT_THAT(fault(DataKind::kNanogpt, "llmc.bin"), HasSubstr("data.kind = llmc"));
}

TEST_F(ForeignTokensTest, NpyOfOneDimensionInEveryWidth) {
  const auto write = [&](const std::string& descr, const std::string& bytes) {
    write_text(dir_ / descr, npy_preamble(descr, {1000}) + bytes);
    expect_counting(DataKind::kNpy, descr, 1000);
  };
  write("<u2", bytes_of<uint16_t>(tokens_));
  write("<i2", bytes_of<int16_t>(tokens_));
  write("<u4", bytes_of<uint32_t>(tokens_));
  write("<i4", bytes_of<int32_t>(tokens_));
  write("<u8", bytes_of<uint64_t>(tokens_));
  write("<i8", bytes_of<int64_t>(tokens_));
  write_text(dir_ / "two.npy", npy_preamble("<u2", {10, 100}) + bytes_of<uint16_t>(tokens_));
  EXPECT_THAT(fault(DataKind::kNpy, "two.npy"), HasSubstr("2 dimensions"));
  write_text(dir_ / "f.npy", npy_preamble("<f4", {1000}) + bytes_of<float>(tokens_));
  EXPECT_THAT(fault(DataKind::kNpy, "f.npy"), HasSubstr("<f4"));
}

TEST_F(ForeignTokensTest, MegatronInEveryTypeAndByEveryName) {
  const std::vector<int32_t> lengths = {400, 0, 1, 99, 500};
  write_text(dir_ / "u16.bin", bytes_of<uint16_t>(tokens_));
  write_text(dir_ / "u16.idx", megatron_index(lengths, 2, 8));
  write_text(dir_ / "i32.bin", bytes_of<int32_t>(tokens_));
  write_text(dir_ / "i32.idx", megatron_index(lengths, 4, 4) + std::string(5, '\0'));  // modes
  write_text(dir_ / "i64.bin", bytes_of<int64_t>(tokens_));
  write_text(dir_ / "i64.idx", megatron_index(lengths, 8, 5));
  for (const char* name : {"u16", "u16.bin", "u16.idx", "i32", "i64"})
    expect_counting(DataKind::kMegatron, name, 1000);
}

// More sequences than are read at once.
TEST_F(ForeignTokensTest, AMegatronIndexOfManySequences) {
  const auto tokens = counting_tokens(40'000 * 3, kVocab);
  const std::vector<int32_t> lengths(40'000, 3);
  write_text(dir_ / "a.bin", bytes_of<uint16_t>(tokens));
  std::string index = megatron_index(lengths, 2, 8, 1);
  write_text(dir_ / "a.idx", index);
  expect_counting(DataKind::kMegatron, "a", 120'000);
  index[34 + 4 * 40'000 + 8 * 20'000] ^= 1;
  write_text(dir_ / "a.idx", index);
  EXPECT_EQ(message_of(open(DataKind::kMegatron, "a")),
            (dir_ / "a.idx").string() +
                ": sequence 20000 begins at byte 120001 of the .bin (at byte offset 320034), but "
                "the lengths before it say 120000");
}

TEST_F(ForeignTokensTest, WhatIsWrongInAMegatronIndexIsNamed) {
  const std::string good = megatron_index({400, 600}, 2, 8, 1);
  write_text(dir_ / "a.bin", bytes_of<uint16_t>(tokens_));
  EXPECT_THAT(message_of(open(DataKind::kMegatron, "a")), HasSubstr("a.idx is missing"));
  const auto fault_of = [&](std::string contents) {
    write_text(dir_ / "a.idx", contents);
    std::filesystem::resize_file(dir_ / "a.idx", contents.size());
    return fault(DataKind::kMegatron, "a.idx");
  };
  // `contents` with `value` at byte `at`.
  const auto with = [&](size_t at, auto value) {
    std::string contents = good;
    contents.replace(at, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
    return contents;
  };
  write_text(dir_ / "a.idx", good);
  expect_counting(DataKind::kMegatron, "a", 1000);
  EXPECT_THAT(fault_of(good.substr(0, 20)), HasSubstr("fewer than its header"));
  EXPECT_THAT(fault_of(good.substr(0, 60)), EndsWith("truncated"));
  EXPECT_THAT(fault_of(good + "x"), EndsWith("it is too long"));
  EXPECT_THAT(fault_of("TNTIDX" + good.substr(6)), HasSubstr("fairseq"));
  EXPECT_THAT(fault_of("X" + good.substr(1)), HasSubstr("MMIDIDX"));
  EXPECT_THAT(fault_of(with(9, uint64_t{2})), HasSubstr("it has version 2 at byte offset 9"));
  EXPECT_THAT(fault_of(with(17, char{7})), HasSubstr("type code 7 at byte offset 17"));
  EXPECT_THAT(fault_of(with(18, int64_t{-1})), HasSubstr("-1 sequences"));
  EXPECT_THAT(fault_of(with(26, int64_t{1} << 60)), HasSubstr("document boundaries"));
  EXPECT_THAT(fault_of(with(34, int32_t{-3})), HasSubstr("sequence 0 has -3 tokens"));
  EXPECT_THAT(fault_of(with(50, int64_t{802})), HasSubstr("sequence 1 begins at byte 802"));
  EXPECT_THAT(fault_of(with(66, int64_t{9})), HasSubstr("boundary 2 at byte offset 74, after 9"));
  EXPECT_THAT(fault_of(with(74, int64_t{1})), HasSubstr("boundary 1 at byte offset 74"));
}

TEST_F(ForeignTokensTest, ATruncatedMegatronFileIsNamed) {
  write_text(dir_ / "a.idx", megatron_index({400, 600}, 2, 8));
  write_text(dir_ / "a.bin", bytes_of<uint16_t>(tokens_).substr(0, 1990));
  EXPECT_EQ(fault(DataKind::kMegatron, "a.bin"),
            "1990 bytes long, but it must have 2000 for the 1000 tokens of its index: truncated");
}

TEST_F(ForeignTokensTest, ATokenOutsideTheVocabularyIsNamedByFileAndOffset) {
  std::vector<int64_t> tokens = tokens_;
  tokens[500] = kVocab;
  write_text(dir_ / "a.bin", llmc_file(tokens));
  tokens[500] = -1;
  write_text(dir_ / "b.npy", npy_preamble("<i4", {1000}) + bytes_of<int32_t>(tokens));
  std::vector<int64_t> out(10);
  const auto llmc = open(DataKind::kLlmc, "a.bin"), npy = open(DataKind::kNpy, "b.npy");
  ASSERT_TRUE(llmc.ok() && npy.ok());
  EXPECT_TRUE(llmc.value()->read(490, out).ok());
  EXPECT_EQ(message_of(llmc.value()->read(495, out)),
            (dir_ / "a.bin").string() +
                ": token 300 at byte offset 2024 is outside the vocabulary of 300");
  EXPECT_THAT(message_of(npy.value()->read(495, out)), HasSubstr("token -1 at byte offset 2128"));
}

TEST_F(ForeignTokensTest, AFolderIsTheFilesOfASplitInTheOrderOfTheirNames) {
  const auto part = [&](size_t begin, size_t end) {
    return llmc_file({tokens_.begin() + static_cast<int64_t>(begin),
                      tokens_.begin() + static_cast<int64_t>(end)});
  };
  write_text(dir_ / "web/fineweb_train_000002.bin", part(400, 1000));
  write_text(dir_ / "web/fineweb_train_000001.bin", part(0, 400));
  write_text(dir_ / "web/fineweb_val_000000.bin", part(5, 25));
  write_text(dir_ / "web/fineweb_test.bin", part(5, 6));
  write_text(dir_ / "web/notes.txt", "no tokens");
  expect_counting(DataKind::kLlmc, "web", 1000);
  EXPECT_EQ(open(DataKind::kLlmc, "web", "val").value()->tokens(), 20);
  // A read across the two files.
  std::vector<int64_t> out(100);
  ASSERT_TRUE(open(DataKind::kLlmc, "web").value()->read(350, out).ok());
  EXPECT_EQ(out[49], 399 % kVocab);
  EXPECT_EQ(out[50], 400 % kVocab);
  EXPECT_THAT(message_of(open(DataKind::kNanogpt, "web/none")),
              HasSubstr("no such file or folder"));
  EXPECT_THAT(message_of(open(DataKind::kNpy, "web")), HasSubstr("no .npy file of split train"));
  EXPECT_THAT(message_of(open(DataKind::kLlmc, "web/fineweb_train_000001.bin", "val")),
              HasSubstr("validation.freq = 0"));
}

TEST_F(ForeignTokensTest, TheHashIsOfTheContentsNotOfTheName) {
  write_text(dir_ / "a.bin", bytes_of<uint16_t>(tokens_));
  write_text(dir_ / "sub/b.bin", bytes_of<uint16_t>(tokens_));
  EXPECT_EQ(hash(DataKind::kNanogpt, "a.bin"), hash(DataKind::kNanogpt, "sub/b.bin"));
  auto other = tokens_;
  other[998] = 0;
  write_text(dir_ / "c.bin", bytes_of<uint16_t>(other));
  EXPECT_NE(hash(DataKind::kNanogpt, "a.bin"), hash(DataKind::kNanogpt, "c.bin"));
  other = tokens_;
  other.pop_back();
  write_text(dir_ / "d.bin", bytes_of<uint16_t>(other));
  EXPECT_NE(hash(DataKind::kNanogpt, "a.bin"), hash(DataKind::kNanogpt, "d.bin"));
  EXPECT_EQ(hash(DataKind::kNanogpt, "a.bin"), "ccbc39b0a22a230e");
}

// Above 1 MiB samples of 4 KiB count: the first, the last, and those between.
TEST_F(ForeignTokensTest, TheHashOfALargeFileReadsLittle) {
  std::vector<int64_t> tokens = counting_tokens(3'000'000, kVocab);
  write_text(dir_ / "a.bin", bytes_of<uint16_t>(tokens));
  const std::string before = hash(DataKind::kNanogpt, "a.bin");
  for (const size_t at : {size_t{0}, size_t{2'999'999}}) {
    auto changed = tokens;
    changed[at] ^= 1;
    write_text(dir_ / "b.bin", bytes_of<uint16_t>(changed));
    EXPECT_NE(hash(DataKind::kNanogpt, "b.bin"), before) << at;
  }
}

}  // namespace
}  // namespace lockstep::data
