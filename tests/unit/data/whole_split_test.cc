#include "data/loader/whole_split.h"

#include <algorithm>

#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

class WholeSplitTest : public testing::Test {
 protected:
  void SetUp() override {
    contents_ = some_text(7, 40).substr(0, 1001);
    write_text(dir_ / "in/a.txt", contents_);
    PrepareOptions options = options_for(dir_ / "in", dir_ / "out");
    options.val_millionths = 0;
    options.shard_tokens = 300;  // rows straddle shards
    ASSERT_TRUE(prepare_bytes(options).ok());
  }
  Result<WholeSplit> open(WholeSplit::Shape shape, const char* split = "train",
                          int64_t vocab_size = 257) {
    return WholeSplit::open(posix_file_system(), dir_ / "out", split, shape, vocab_size);
  }
  std::string failure(Result<WholeSplit> opened) {
    EXPECT_TRUE(!opened.ok() && opened.error().code == Code::kConfig);
    return message_of(opened);
  }
  test_support::TempDir dir_;
  std::string contents_;
};

// 1,001 bytes and the end of the document: 1,001 predictions.
TEST_F(WholeSplitTest, EachTokenButTheFirstIsPredictedOnceInFileOrder) {
  for (const auto& [seq_len, rows] :
       {std::pair<int64_t, int64_t>{64, 3}, {7, 2}, {1001, 1}, {1000, 1}, {2000, 2}, {1, 5}}) {
    auto split = open({.seq_len = seq_len, .rows = rows});
    ASSERT_TRUE(split.ok()) << message_of(split);
    std::vector<int64_t> labels;
    int64_t counted = 0;
    for (int64_t i = 0; i < split->batches(); ++i) {
      auto batch = split->batch(i);
      ASSERT_TRUE(batch.ok()) << message_of(batch);
      ASSERT_EQ(std::ssize(batch->tokens), rows * seq_len);
      ASSERT_EQ(batch->labels.size(), batch->tokens.size());
      counted += batch->valid_tokens;
      for (size_t k = 0; k < batch->labels.size(); ++k) {
        if (batch->labels[k] == kNotCounted) continue;
        ASSERT_EQ(batch->tokens[k], static_cast<unsigned char>(contents_[labels.size()]));
        labels.push_back(batch->labels[k]);
      }
      std::vector<int64_t> starts;
      for (int64_t row = 0; row < rows; ++row) starts.push_back(row * seq_len);
      EXPECT_EQ(batch->document_starts, starts);
    }
    ASSERT_EQ(labels.size(), 1001u) << seq_len;
    EXPECT_EQ(counted, 1001);
    for (size_t k = 0; k + 1 < labels.size(); ++k)
      ASSERT_EQ(labels[k], static_cast<unsigned char>(contents_[k + 1]));
    EXPECT_EQ(labels.back(), 256);
  }
}

TEST_F(WholeSplitTest, WhatCannotBeEvaluatedIsNamed) {
  EXPECT_THAT(failure(open({.seq_len = 64, .rows = 1}, "val")),
              HasSubstr("split \"val\" of " + (dir_ / "out").string() + " has 0 tokens"));
  EXPECT_THAT(failure(open({.seq_len = 64, .rows = 1}, "train", 256)),
              HasSubstr("vocabulary size 256 is below the 257 of"));
  PrepareOptions packed = options_for(dir_ / "in", dir_ / "packed");
  packed.val_millionths = 0;
  packed.pack_seq_len = 32;
  ASSERT_TRUE(prepare_bytes(packed).ok());
  EXPECT_THAT(failure(WholeSplit::open(posix_file_system(), dir_ / "packed", "train",
                                       {.seq_len = 64, .rows = 1}, 257)),
              HasSubstr("is packed for sequences of 32 tokens, but the sequence length is 64"));
}

}  // namespace
}  // namespace lockstep::data
