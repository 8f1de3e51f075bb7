#include "base/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "base/text.h"
#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

Result<SafetensorsHeader> header_of(const std::string& contents) {
  const test_support::TempDir folder;
  const auto path = folder / "a.safetensors";
  FileSystem& disk = posix_file_system();
  auto file = disk.create(path);
  if (!file.ok()) return file.error();
  LOCKSTEP_RETURN_IF_ERROR(file.value()->write_at(as_bytes(contents), 0));
  return read_safetensors_header(*file.value(), "a.safetensors");
}

// The file's bytes: length, JSON, `data_bytes` zeros.
std::string file_with(const std::string& json, size_t data_bytes) {
  const uint64_t length = json.size();
  std::string contents(sizeof length, '\0');
  std::memcpy(contents.data(), &length, sizeof length);
  return contents + json + std::string(data_bytes, '\0');
}

void expect_refused(const std::string& contents, const std::string& words) {
  const auto header = header_of(contents);
  ASSERT_FALSE(header.ok()) << words;
  EXPECT_EQ(header.error().code, Code::kCorrupt);
  EXPECT_NE(header.error().message.find(words), std::string::npos) << header.error().message;
  EXPECT_NE(header.error().message.find("a.safetensors"), std::string::npos);
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  SafetensorsHeader written{
      {{"b.weight", "F32", {2, 3}}, {"a", "BF16", {5}}, {"empty", "F32", {0}}}, {{"format", "pt"}}};
  const std::string preamble = safetensors_preamble(written);
  EXPECT_EQ(preamble.size() % 8, 0u);
  EXPECT_EQ(written.entries[0].begin, static_cast<int64_t>(preamble.size()));
  const auto read = header_of(preamble + std::string(2 * 3 * 4 + 5 * 2, '\0'));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read.value().metadata.at("format"), "pt");
  ASSERT_EQ(read.value().entries.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read.value().entries[i].name, written.entries[i].name);
    EXPECT_EQ(read.value().entries[i].shape, written.entries[i].shape);
    EXPECT_EQ(read.value().entries[i].begin, written.entries[i].begin);
    EXPECT_EQ(read.value().entries[i].end, written.entries[i].end);
  }
}

// Reading and writing look at each tensor a fixed number of times: 0.3 s here, else minutes. No
// verdict rests on that; what is asked is that the last of many tensors is where it belongs.
TEST(Safetensors, ManyTensors) {
  constexpr int64_t kTensors = 80'000;
  std::vector<SafetensorsEntry> tensors;
  for (int64_t i = 0; i < kTensors; ++i)
    tensors.push_back({text("model.layers.", i, ".weight"), "BF16", {1}});
  const auto files = cut_into_files(tensors, 2 * kTensors);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_NE(safetensors_index(files).find(R"("model.layers.79999.weight": "model.safetensors")"),
            std::string::npos);
  const auto read = header_of(files[0].preamble + std::string(2 * kTensors, '\0'));
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read.value().entries.size(), static_cast<size_t>(kTensors));
  EXPECT_EQ(read.value().entries.back().name, "model.layers.79999.weight");
  EXPECT_EQ(read.value().entries.back().begin,
            static_cast<int64_t>(files[0].preamble.size()) + 2 * (kTensors - 1));
}

TEST(Safetensors, DamageIsNamed) {
  const std::string entry = R"("w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]})";
  ASSERT_TRUE(header_of(file_with("{" + entry + "}", 24)).ok());
  expect_refused("", "not a safetensors file");
  expect_refused(std::string(8, '\xff') + "{}", "not a safetensors file");
  expect_refused(file_with("{" + entry, 24), "not a JSON object");
  expect_refused(file_with("{" + entry + ", " + entry + "}", 24), "w appears twice in the header");
  expect_refused(file_with("[1]", 0), "not a JSON object");
  expect_refused(file_with("{\"__metadata__\": " + std::string(100'000, '['), 0),
                 "not a JSON object");
  expect_refused(file_with(R"({"w": 7})", 24), "tensor w");
  expect_refused(file_with("{" + entry + "}", 23), "tensor w ends at byte");
  expect_refused(file_with("{" + entry + "}", 25), "the tensors end at");
  expect_refused(file_with(R"({"w": {"dtype": "F32", "shape": [2, 3]}})", 24), "data_offsets");
  expect_refused(file_with(R"({"w": {"dtype": "F31", "shape": [6], "data_offsets": [0, 24]}})", 24),
                 "F31");
  expect_refused(file_with(R"({"w": {"dtype": "F32", "shape": [7], "data_offsets": [0, 24]}})", 24),
                 "does not fill");
  expect_refused(
      file_with(R"({"w": {"dtype": "F32", "shape": [-6], "data_offsets": [0, 24]}})", 24), "shape");
  expect_refused(
      file_with(
          R"({"w": {"dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,24]}})",
          24),
      "does not fill");
  expect_refused(
      file_with("{" + entry + R"(, "v": {"dtype": "F32", "shape": [1], "data_offsets": [28, 32]}})",
                32),
      "begins at byte");
  expect_refused(
      file_with("{" + entry + R"(, "v": {"dtype": "F32", "shape": [1], "data_offsets": [20, 24]}})",
                24),
      "begins at byte");
}

TEST(Float16, EveryHalfIsItsExactFloat) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31),
              mantissa = static_cast<int>(bits & 1023);
    const float got = half_to_float(static_cast<uint16_t>(bits));
    const double sign = bits >> 15 ? -1.0 : 1.0;
    if (exponent == 31) {
      EXPECT_TRUE(mantissa == 0 ? std::isinf(got) : std::isnan(got)) << bits;
      EXPECT_EQ(std::signbit(got), bits >> 15 != 0) << bits;
      continue;
    }
    const double want =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(static_cast<double>(got), sign * want) << bits;
  }
}

std::vector<std::string> names_of(const std::vector<SafetensorsFile>& files) {
  std::vector<std::string> names;
  for (const SafetensorsFile& file : files) names.push_back(file.name);
  return names;
}

TEST(SafetensorsFiles, AreCutWhereTheNextTensorWouldExceedTheLimit) {
  const std::vector<SafetensorsEntry> tensors = {
      {"a", "F32", {10}}, {"b", "BF16", {10}}, {"c", "F32", {100}}, {"d", "F32", {1}}};
  EXPECT_EQ(names_of(cut_into_files(tensors, 464)), std::vector<std::string>{"model.safetensors"});
  const auto files = cut_into_files(tensors, 60);  // c alone is larger
  EXPECT_EQ(names_of(files), (std::vector<std::string>{"model-00001-of-00003.safetensors",
                                                       "model-00002-of-00003.safetensors",
                                                       "model-00003-of-00003.safetensors"}));
  EXPECT_EQ(files[0].data_bytes(), 60);
  EXPECT_EQ(files[1].data_bytes(), 400);
  for (const SafetensorsFile& file : files) {
    const auto header =
        header_of(file.preamble + std::string(static_cast<size_t>(file.data_bytes()), '\0'));
    ASSERT_TRUE(header.ok()) << header.error().message;
    EXPECT_EQ(header.value().metadata.at("format"), "pt");
    EXPECT_EQ(header.value().entries.size(), file.header.entries.size());
  }
  EXPECT_EQ(safetensors_index(files),
            "{\n  \"metadata\": {\n    \"total_size\": 464\n  },\n  \"weight_map\": {\n"
            "    \"a\": \"model-00001-of-00003.safetensors\",\n"
            "    \"b\": \"model-00001-of-00003.safetensors\",\n"
            "    \"c\": \"model-00002-of-00003.safetensors\",\n"
            "    \"d\": \"model-00003-of-00003.safetensors\"\n  }\n}\n");
}

}  // namespace
}  // namespace lockstep
