#include "data/loader/npy_dataset.h"

#include "data/formats/npy_file.h"
#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using test_support::TempDir;

template <typename T>
void write_array(const std::filesystem::path& path, const std::string& descr,
                 const std::vector<int64_t>& shape, const std::vector<T>& values) {
  std::string contents = npy_preamble(descr, shape);
  contents.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  write_text(path, contents);
}

TokenDataset::Options options(int64_t slots, int64_t batch) {
  return {.split = "train",
          .seq_len = 3,
          .batch_size = batch,
          .slots = slots,
          .seed = 0,
          .vocab_size = 100};
}

// 2 steps of 4 sequences of 3 tokens: 0 … 23.
std::vector<int32_t> counting() {
  std::vector<int32_t> values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i);
  return values;
}

TEST(NpyDataset, RowsInFileOrderAndLabelsShiftedInsideT) {
  const TempDir folder;
  const auto path = folder / "t.npy";
  write_array(path, "<i4", {2, 4, 3}, counting());
  const auto dataset = open_npy(posix_file_system(), path, options(2, 2));
  ASSERT_TRUE(dataset.ok()) << dataset.error().message;
  const auto batch = dataset.value()->batch(1, 1);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch.value().tokens, (std::vector<int64_t>{18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(batch.value().labels, (std::vector<int64_t>{19, 20, -100, 22, 23, -100}));
  EXPECT_EQ(batch.value().valid_tokens, 4);
  // After the last step the first comes again.
  EXPECT_EQ(dataset.value()->batch(3, 1).value().tokens, batch.value().tokens);
  EXPECT_EQ(dataset.value()->batch(2, 0).value().tokens[0], 0);
}

TEST(NpyDataset, EveryIntegerDtypeGivesTheSameTokensAndHash) {
  const TempDir folder;
  const std::vector<int32_t> values = counting();
  const auto write = [&]<typename T>(const char* descr, T) {
    write_array(folder / descr, descr, {2, 4, 3}, std::vector<T>(values.begin(), values.end()));
  };
  write("<i2", int16_t{});
  write("<u2", uint16_t{});
  write("<i4", int32_t{});
  write("<u4", uint32_t{});
  write("<i8", int64_t{});
  write("<u8", uint64_t{});
  std::string hash;
  for (const char* descr : {"<i2", "<u2", "<i4", "<u4", "<i8", "<u8"}) {
    const auto dataset = open_npy(posix_file_system(), folder / descr, options(4, 1));
    ASSERT_TRUE(dataset.ok()) << dataset.error().message;
    EXPECT_EQ(dataset.value()->batch(1, 3).value().tokens, (std::vector<int64_t>{21, 22, 23}));
    const auto hash_here = hash_npy(posix_file_system(), folder / descr);
    ASSERT_TRUE(hash_here.ok());
    if (hash.empty()) hash = hash_here.value();
    EXPECT_EQ(hash_here.value(), hash);
  }
}

TEST(NpyDataset, WhatDoesNotFitIsNamed) {
  const TempDir folder;
  const auto path = folder / "t.npy";
  const auto said = [&](TokenDataset::Options o) {
    const auto opened = open_npy(posix_file_system(), path, std::move(o));
    EXPECT_EQ(opened.ok() ? Code::kConfig : opened.error().code, Code::kConfig);
    return message_of(opened);
  };
  EXPECT_THAT(said(options(2, 2)), testing::HasSubstr("t.npy"));
  write_array(path, "<i4", {2, 4, 3}, counting());
  EXPECT_EQ(said(options(2, 2)), "");
  EXPECT_THAT(said(options(3, 2)), testing::HasSubstr("training.slots"));
  auto o = options(2, 2);
  o.seq_len = 4;
  EXPECT_THAT(said(o), testing::HasSubstr("training.seq_len"));
  o = options(2, 2);
  o.vocab_size = 20;
  EXPECT_THAT(said(o), testing::HasSubstr("token 20 at index 20"));
  o.split = "val";
  EXPECT_THAT(said(o), testing::HasSubstr("validation.freq"));
  write_array(path, "<i4", {8, 3}, counting());
  EXPECT_THAT(said(options(2, 2)), testing::HasSubstr("2 dimensions"));
  write_array(path, "<f4", {2, 4, 3}, counting());
  EXPECT_THAT(said(options(2, 2)), testing::HasSubstr("<f4"));
  write_array(path, "<i4", {2, 4, 3}, std::vector<int32_t>(23));
  EXPECT_THAT(said(options(2, 2)), testing::HasSubstr("its header says"));
  write_text(path, "no numbers");
  EXPECT_THAT(said(options(2, 2)), testing::HasSubstr("not an .npy file"));
}

}  // namespace
}  // namespace lockstep::data
