#include "checkpoint/tools/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "base/json.h"
#include "checkpoint/tools/diff.h"
#include "checkpoint/tools/import.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/newest_valid.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/world.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::Fault;
using lockstep::test_support::FaultyFileSystem;
using lockstep::test_support::Op;
using lockstep::test_support::TempDir;
using test_support::odd_model;
using test_support::options_in;
using test_support::value_at;
using test_support::World;
using testing::ElementsAre;
using testing::HasSubstr;
using Path = std::filesystem::path;

constexpr int64_t kStep = 5;

Path saved(const Path& folder) {
  World world(posix_file_system(), options_in(folder), odd_model(), 3);
  return world.save(kStep).at(0).directory;
}

// A file as a program that knows nothing of us writes it.
std::string file_of(const std::string& json, const std::string& bytes) {
  const uint64_t length = json.size();
  std::string contents(8, '\0');
  std::memcpy(contents.data(), &length, 8);
  return contents + json + bytes;
}

Path written(const TempDir& dir, const std::string& contents,
             const std::string& name = "model.safetensors") {
  EXPECT_TRUE(publish_file(posix_file_system(), dir / name, contents).ok());
  return dir / name;
}

// name -> fp32 values, read with nothing but JSON.
std::map<std::string, std::vector<float>> read_plainly(const Path& path) {
  const std::string contents = read_file(posix_file_system(), path).value();
  uint64_t length;
  std::memcpy(&length, contents.data(), 8);
  const auto json = nlohmann::json::parse(contents.substr(8, length));
  std::map<std::string, std::vector<float>> tensors;
  for (const auto& [name, tensor] : json.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    const bool wide = tensor["dtype"] == "F32";
    auto& values = tensors[name];
    for (size_t at = begin; at < end; at += wide ? 4 : 2) {
      uint32_t word = 0;
      std::memcpy(wide ? reinterpret_cast<char*>(&word) : reinterpret_cast<char*>(&word) + 2,
                  contents.data() + 8 + length + at, wide ? 4 : 2);
      values.push_back(std::bit_cast<float>(word));
    }
  }
  return tensors;
}

TEST(Export, AnIndependentReaderFindsTheWeights) {
  const TempDir dir;
  ExportOptions options;
  options.source = saved(dir / "a");
  options.folder = dir / "out";
  const auto files = export_safetensors(posix_file_system(), options, test_support::kSilent);
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_THAT(files.value(), ElementsAre(dir / "out" / "model.safetensors"));
  const auto tensors = read_plainly(files.value().front());
  EXPECT_EQ(tensors.size(), odd_model().size());
  for (const auto& spec : odd_model()) {
    const auto& values = tensors.at(spec.name);
    ASSERT_EQ(static_cast<int64_t>(values.size()), spec.count());
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(values[i], value_at("param/" + spec.name, kStep, static_cast<int64_t>(i)));
  }
  const auto again = export_safetensors(posix_file_system(), options, test_support::kSilent);
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.error().message, HasSubstr("exists already"));
  options.folder = options.source;
  EXPECT_FALSE(export_safetensors(posix_file_system(), options, test_support::kSilent).ok());
}

TEST(Export, ShardsAreNumberedAndIndexedAndBf16IsRoundedToNearest) {
  const TempDir dir;
  ExportOptions options;
  options.source = saved(dir / "a");
  options.folder = dir / "out";
  options.dtype = Dtype::kBf16;
  options.kinds = {Kind::kAdamV};
  options.max_shard_bytes = 1000;
  const auto files = export_safetensors(posix_file_system(), options, test_support::kSilent);
  ASSERT_TRUE(files.ok()) << files.error().message;
  const auto index = nlohmann::json::parse(
      read_file(posix_file_system(), dir / "out" / "model.safetensors.index.json").value());
  int64_t elements = 0;
  for (const auto& spec : odd_model()) {
    const auto tensors = read_plainly(dir / "out" / index["weight_map"][spec.name].get<Path>());
    const auto& values = tensors.at(spec.name);
    for (size_t i = 0; i < values.size(); ++i) {
      const float exact = value_at("adam_v/" + spec.name, kStep, static_cast<int64_t>(i));
      EXPECT_LE(std::abs(values[i] - exact), std::abs(exact) / 256);
      EXPECT_EQ(values[i], bf16_to_float(float_to_bf16(exact)));
    }
    elements += spec.count();
  }
  EXPECT_EQ(index["metadata"]["total_size"], 2 * elements);
  EXPECT_EQ(files.value().size(), 6u);  // cube | embed | norm | wq | one, scale | the index
  EXPECT_EQ(files.value().front().filename(), "model-00001-of-00005.safetensors");
}

TEST(Export, AFailureAtAnyCallLeavesNoFinishedSet) {
  const TempDir dir;
  ExportOptions options;
  options.source = saved(dir / "a");
  options.max_shard_bytes = 1000;
  bool done = false;
  for (int64_t k = 1; !done; ++k) {
    options.folder = dir / text("out", k);
    FaultyFileSystem disk(posix_file_system(),
                          {.op = Op::kAny, .at_call = k, .fault = Fault::kNoSpace});
    const auto files = export_safetensors(disk, options, test_support::kSilent);
    done = disk.calls(Op::kAny) < k;
    EXPECT_EQ(files.ok(), done) << k;
    if (done) continue;
    // Only the fsync after the last rename may fail and leave a set: then it is whole.
    if (posix_file_system().exists(options.folder / "model.safetensors.index.json")) {
      const auto made = import_safetensors(
          posix_file_system(),
          {options.folder, dir / text("in", k), false, 1, Codec::kNone, 1, "abc123"},
          test_support::kSilent);
      EXPECT_TRUE(made.ok()) << k << ": " << made.error().message;
    }
    if (!posix_file_system().exists(options.folder)) continue;
    const auto names = posix_file_system().list(options.folder).value();
    for (const std::string& name : names)
      EXPECT_FALSE(name.ends_with(".tmp")) << name << " at call " << k;
  }
}

TEST(Import, WhatWasExportedComesBackBitForBit) {
  const TempDir dir;
  ExportOptions options;
  options.source = saved(dir / "a");
  options.folder = dir / "out";
  options.kinds = {Kind::kParam, Kind::kAdamM, Kind::kAdamV};
  options.max_shard_bytes = 20000;
  ASSERT_TRUE(export_safetensors(posix_file_system(), options, test_support::kSilent).ok());
  const auto made = import_safetensors(
      posix_file_system(), {dir / "out", dir / "b", false, 2, Codec::kGzip, 2, "abc123"},
      test_support::kSilent);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made.value().filename(), "step_00000000.g0-abc123");
  const auto diff =
      diff_checkpoints(posix_file_system(), options.source, made.value(), 1, test_support::kSilent);
  ASSERT_TRUE(diff.ok()) << diff.error().message;
  EXPECT_EQ(diff.value().equal_tensors, 18);
  EXPECT_TRUE(diff.value().tensors.empty() && diff.value().only_a.empty());
}

TEST(Import, HalvesAreWidenedAndTheOptimizerIsZeros) {
  const TempDir dir;
  // 1, -2 and the smallest subnormal; 1.5 and -0.25.
  const Path source =
      written(dir, file_of(R"({"h":{"dtype":"F16","shape":[3,1],"data_offsets":[0,6]},)"
                           R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[6,10]}})",
                           std::string("\x00\x3c\x00\xc0\x01\x00\xc0\x3f\x80\xbe", 10)));
  const auto made = import_safetensors(posix_file_system(),
                                       {source, dir / "b", true, 1, Codec::kZstd, 1, "abc123"},
                                       test_support::kSilent);
  ASSERT_TRUE(made.ok()) << made.error().message;
  std::vector<float> h(3), b(2), m(3, 1.0f);
  std::vector<LiveTarget> targets{
      {{"h", Kind::kParam, {3, 1}, 0, 3}, std::as_writable_bytes(std::span(h))},
      {{"b", Kind::kParam, {2}, 0, 2}, std::as_writable_bytes(std::span(b))},
      {{"h", Kind::kAdamM, {3, 1}, 0, 3}, std::as_writable_bytes(std::span(m))}};
  const auto loaded = test_support::newest_valid(posix_file_system(), dir / "b", targets, 1);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_THAT(h, ElementsAre(1.0f, -2.0f, 0x1p-24f));
  EXPECT_THAT(b, ElementsAre(1.5f, -0.25f));
  EXPECT_THAT(m, ElementsAre(0.0f, 0.0f, 0.0f));
  EXPECT_EQ(loaded.value().manifest.step, 0);
}

TEST(Import, ErrorsNameFileAndTensor) {
  const auto error_of = [](const Path& source, const Path& folder) {
    const auto made = import_safetensors(posix_file_system(),
                                         {source, folder, false, 1, Codec::kZstd, 1, "abc123"},
                                         test_support::kSilent);
    EXPECT_FALSE(made.ok());
    EXPECT_FALSE(posix_file_system().exists(folder));
    return made.ok() ? "" : made.error().message;
  };
  const TempDir dir;
  const std::string a = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  EXPECT_THAT(error_of(dir / "none", dir / "x"), HasSubstr("none"));
  EXPECT_THAT(error_of(dir.path(), dir / "x"), HasSubstr("no *.safetensors in this folder"));
  const Path one = written(dir, file_of(a, "xxx"), "one.safetensors");
  EXPECT_THAT(error_of(one, dir / "x"), HasSubstr("one.safetensors: tensor a ends at byte"));
  const auto of = [&](const std::string& shape, const std::string& dtype, int end) {
    return file_of(text(R"({"a":{"dtype":")", dtype, R"(","shape":)", shape,
                        R"(,"data_offsets":[0,)", end, "]}}"),
                   std::string(static_cast<size_t>(end), 'x'));
  };
  for (const auto& [contents, message] :
       {std::pair{of("[1]", "I64", 8), "tensor a has the unsupported dtype I64"},
        {of("[0]", "F32", 0), "no elements"},
        {file_of("{}", ""), "no tensor"}})
    EXPECT_THAT(error_of(written(dir, contents, "odd.safetensors"), dir / "x"), HasSubstr(message));
  std::filesystem::remove(dir / "odd.safetensors");
  written(dir, file_of(a, "xxxx"), "one.safetensors");
  written(dir, file_of(a, "yyyy"), "two.safetensors");
  EXPECT_THAT(error_of(dir.path(), dir / "x"),
              HasSubstr("two.safetensors: tensor a appears twice"));
  written(dir, R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})",
          "model.safetensors.index.json");
  EXPECT_THAT(error_of(dir.path(), dir / "x"), HasSubstr("tensor b should be in one.safetensors"));
  written(dir, R"({"weight_map":{"a":"../one.safetensors"}})", "model.safetensors.index.json");
  EXPECT_THAT(error_of(dir.path(), dir / "x"), HasSubstr("not a plain file name"));
}

}  // namespace
}  // namespace lockstep::checkpoint
