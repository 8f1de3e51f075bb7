#include "data/prepare/packer.h"

#include <algorithm>
#include <map>

#include "cli/prepare/prepare_inspect.h"
#include "data/loader/open_dataset.h"
#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kEnd = 9999;

// What a packer wrote.
struct Stream {
  std::vector<uint32_t> tokens;
  std::vector<uint8_t> in_loss, starts;
  int64_t filling = 0;
};

// Document d of the lengths is the tokens 100*d, 100*d + 1, …
Stream packed(const std::vector<size_t>& lengths, int64_t seq_len, size_t piece = 1000) {
  Stream out;
  Packer packer(seq_len, kEnd, [&](const auto& tokens, const auto& in_loss, const auto& starts) {
    out.tokens.insert(out.tokens.end(), tokens.begin(), tokens.end());
    out.in_loss.insert(out.in_loss.end(), in_loss.begin(), in_loss.end());
    out.starts.insert(out.starts.end(), starts.begin(), starts.end());
    return Result<void>();
  });
  for (size_t d = 0; d < lengths.size(); ++d) {
    std::vector<uint32_t> tokens(lengths[d]);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(100 * d + i);
    const std::vector<uint8_t> counts(tokens.size(), 1);
    for (size_t at = 0; at < tokens.size(); at += piece) {
      const size_t size = std::min(piece, tokens.size() - at);
      EXPECT_TRUE(
          packer.append(std::span(tokens).subspan(at, size), std::span(counts).subspan(at, size))
              .ok());
    }
    EXPECT_TRUE(packer.end_document().ok());
  }
  EXPECT_TRUE(packer.seal().ok());
  out.filling = packer.filling_tokens();
  return out;
}

TEST(Packer, LongestFirstIntoTheFullestBinThatHasRoom) {
  // 7 opens a bin, 5 another one; 3 fills the first, 4 goes to the second, 1 fills it.
  const Stream out = packed({3, 7, 4, 5, 1}, 10);
  EXPECT_THAT(out.tokens, ElementsAre(100, 101, 102, 103, 104, 105, 106, 0, 1, 2,        //
                                      300, 301, 302, 303, 304, 200, 201, 202, 203, 400,  //
                                      kEnd));
  EXPECT_THAT(out.starts, ElementsAre(1, 0, 0, 0, 0, 0, 0, 1, 0, 0,  //
                                      1, 0, 0, 0, 0, 1, 0, 0, 0, 1,  //
                                      1));
  for (size_t i = 0; i < out.tokens.size(); ++i) EXPECT_EQ(out.in_loss[i], 1 - out.starts[i]) << i;
  EXPECT_EQ(out.filling, 0);
}

TEST(Packer, FillingIsNoDocumentAndDoesNotCount) {
  const Stream out = packed({3}, 5);
  EXPECT_THAT(out.tokens, ElementsAre(0, 1, 2, kEnd, kEnd, kEnd));
  EXPECT_THAT(out.in_loss, ElementsAre(0, 1, 1, 0, 0, 0));
  EXPECT_THAT(out.starts, ElementsAre(1, 0, 0, 1, 0, 1));
  EXPECT_EQ(out.filling, 2);
  EXPECT_TRUE(packed({}, 5).tokens.empty());
}

TEST(Packer, ALongDocumentGivesWholeBinsAndARest) {
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{1000}}) {
    const Stream out = packed({2, 11, 4}, 4, piece);
    EXPECT_THAT(out.tokens, ElementsAre(100, 101, 102, 103, 104, 105, 106, 107,  // whole bins
                                        200, 201, 202, 203,                      // longest first
                                        108, 109, 110, kEnd, 0, 1, kEnd, kEnd, kEnd));
  }
}

// Whatever the documents are: each is whole, in one bin, and no two bins could be one.
TEST(Packer, EveryDocumentIsWholeAndLittleIsFilled) {
  constexpr size_t kSeqLen = 100;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<size_t> lengths;
    for (uint64_t i = 0; i < 95; ++i) lengths.push_back(1 + mix64(seed * 1000 + i) % 99);
    const Stream out = packed(lengths, kSeqLen);
    ASSERT_EQ(out.tokens.size() % kSeqLen, 1u);
    std::map<uint32_t, size_t> found;  // first token of a document -> length
    std::vector<size_t> used(out.tokens.size() / kSeqLen, 0);
    for (size_t i = 0; i + 1 < out.tokens.size();) {
      size_t end = i + 1;
      while (end % kSeqLen != 0 && !out.starts[end]) ++end;
      ASSERT_TRUE(out.starts[i]);
      if (out.tokens[i] != kEnd) {
        found[out.tokens[i]] = end - i;
        used[i / kSeqLen] += end - i;
        for (size_t k = i; k < end; ++k) ASSERT_EQ(out.tokens[k], out.tokens[i] + (k - i));
      }
      i = end;
    }
    ASSERT_EQ(found.size(), lengths.size());
    for (size_t d = 0; d < lengths.size(); ++d)
      ASSERT_EQ(found[static_cast<uint32_t>(100 * d)], lengths[d]);
    std::sort(used.begin(), used.end());
    EXPECT_TRUE(used.size() == 1 || used[0] + used[1] > kSeqLen) << "two bins could be one";
  }
}

// This never changes: what is on disk follows from it.
TEST(Packer, Golden) {
  std::vector<size_t> lengths;
  for (uint64_t i = 0; i < 90; ++i) lengths.push_back(1 + mix64(i) % 90);
  const Stream out = packed(lengths, 64);
  EXPECT_EQ(hex64(xxh3_64(std::as_bytes(std::span(out.tokens)))), "a11c92fa152cf794");
}

class PackedFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string lines;
    for (size_t i = 0; i < 60; ++i)
      lines += text(R"({"p": "question )", i, R"(", "r": ")", std::string(i, 'x'), "\"}\n");
    write_text(dir_ / "a.jsonl", lines);
    options_ = options_for(dir_ / "a.jsonl", dir_ / "out");
    options_.records = RecordFormat{.prompt_field = "p", .response_field = "r"};
    options_.val_millionths = 0;
    options_.pack_seq_len = 128;
    options_.shard_tokens = 700;  // bins straddle shards
  }
  auto open(int64_t seq_len) {
    return open_dataset(posix_file_system(), {.path = dir_ / "out"},
                        {"train", seq_len, 1, 1, 0, 257});
  }
  test_support::TempDir dir_;
  PrepareOptions options_;
};

TEST_F(PackedFolderTest, ASampleIsABinAndTheBatchSaysWhereDocumentsStart) {
  const auto report = prepare_bytes(options_);
  ASSERT_TRUE(report.ok()) << message_of(report);
  const DatasetManifest& manifest = report.value().manifest;
  EXPECT_TRUE(manifest.shards[0].starts);
  EXPECT_EQ(manifest.tokens("train") % 128, 1);
  EXPECT_LT(manifest.filling_tokens, 128 * 2);
  const auto dataset = open(128);
  ASSERT_TRUE(dataset.ok()) << message_of(dataset);
  EXPECT_EQ(dataset.value()->sample_count(), manifest.tokens("train") / 128);
  int64_t documents = 0, counted = 0;
  for (int64_t i = 0; i < dataset.value()->sample_count(); ++i) {
    const auto batch = dataset.value()->sample(i);
    ASSERT_TRUE(batch.ok()) << message_of(batch);
    const SlotBatch& sample = batch.value();
    EXPECT_EQ(sample.labels.back(), kNotCounted);  // another document's first token
    EXPECT_EQ(sample.document_starts[0], 0);
    counted += sample.valid_tokens;
    for (const int64_t start : sample.document_starts) {
      const bool filling = sample.tokens[static_cast<size_t>(start)] == 256;
      documents += !filling;
      EXPECT_EQ(sample.tokens[static_cast<size_t>(start)], filling ? 256 : 'q');
      EXPECT_TRUE(start == 0 || sample.labels[static_cast<size_t>(start) - 1] == kNotCounted);
    }
  }
  EXPECT_EQ(documents, 60);
  EXPECT_EQ(counted, 60 * 59 / 2 + 60);  // responses, each with its end
  EXPECT_TRUE(prepare_bytes(options_).value().up_to_date);
  EXPECT_THAT(message_of(open(64)), HasSubstr("is packed for sequences of 128 tokens"));
}

TEST_F(PackedFolderTest, InspectShowsTheDocumentsOfASample) {
  ASSERT_TRUE(prepare_bytes(options_).ok());
  const int64_t samples = open(128).value()->sample_count();
  std::ostringstream first, last;
  const std::string folder = (dir_ / "out").string();
  ASSERT_TRUE(cli::inspect_sample({folder, "train", 0}, first).ok());
  ASSERT_TRUE(cli::inspect_sample({folder, "train", samples - 1}, last).ok());
  // The longest document is 11 letters, 59 more and its end.
  EXPECT_THAT(first.str(), HasSubstr("document 1, tokens 0 to 70\n"
                                     "     | question 59\n"
                                     "loss | " +
                                     std::string(59, 'x')));
  EXPECT_THAT(first.str(), HasSubstr("document 2, tokens 71 to "));
  EXPECT_THAT(last.str(), HasSubstr("filling, tokens "));
}

TEST_F(PackedFolderTest, TextIsPackedTooAndThreadsChangeNothing) {
  std::string hash;
  for (const int threads : {1, 3}) {
    for (int i = 0; i < 20; ++i) write_text(dir_ / text("in/", i), some_text(1, 3 * i + 1));
    PrepareOptions options = options_for(dir_ / "in", dir_ / text("out", threads));
    options.pack_seq_len = 512;
    options.val_millionths = 200'000;
    options.threads = threads;
    const auto report = prepare_bytes(options);
    ASSERT_TRUE(report.ok()) << message_of(report);
    if (hash.empty()) hash = report.value().manifest.hash;
    EXPECT_EQ(report.value().manifest.hash, hash);
  }
}

TEST_F(PackedFolderTest, ADamagedFileOfStartsIsNamed) {
  ASSERT_TRUE(prepare_bytes(options_).ok());
  std::string starts = contents_of(dir_ / "out/train_00000.starts");
  starts[starts.size() - 2] ^= 1;
  write_text(dir_ / "out/train_00000.starts", starts);
  const auto sample = open(128).value()->sample(0);
  ASSERT_FALSE(sample.ok());
  EXPECT_EQ(sample.error().code, Code::kCorrupt);
  EXPECT_THAT(sample.error().message, HasSubstr("train_00000.starts"));
}

}  // namespace
}  // namespace lockstep::data
