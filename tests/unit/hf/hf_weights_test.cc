#include "hf/hf_weights.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/float16.h"
#include "base/text.h"
#include "layout/decoder_model.h"
#include "tests/support/counting_file_system.h"
#include "tests/support/temp_dir.h"

namespace lockstep::hf {
namespace {

using namespace layout;

DecoderShape tiny(bool tied) {
  DecoderShape s;
  s.dim = 8;
  s.n_layers = 1;
  s.n_heads = s.n_kv_heads = 2;
  s.head_dim = 4;
  s.ffn_dim = 12;
  s.vocab_size = 10;
  s.tied = tied;
  return s;
}

float value_of(const std::string& name, int64_t i) {
  return static_cast<float>(name.size()) + static_cast<float>(i) / 8;
}

void write_file(const std::filesystem::path& path, std::string_view contents) {
  auto file = posix_file_system().create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file.value()->write_at(as_bytes(contents), 0).ok());
}

std::vector<SafetensorsEntry> entries_of(const ModelSpec& spec, const std::string& dtype) {
  std::vector<SafetensorsEntry> entries;
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& p : unit.params) entries.push_back({p.name, dtype, p.shape});
  return entries;
}

void write_tensors(const std::filesystem::path& path, std::vector<SafetensorsEntry> entries) {
  SafetensorsHeader header{std::move(entries), {}};
  std::string contents = safetensors_preamble(header);
  for (const SafetensorsEntry& e : header.entries) {
    const int64_t width = e.dtype == "F32" ? 4 : 2;
    for (int64_t i = 0; i < (e.end - e.begin) / width; ++i) {
      const float value = value_of(e.name, i);
      const uint16_t narrow = float_to_bf16(value);
      contents.append(width == 4 ? reinterpret_cast<const char*>(&value)
                                 : reinterpret_cast<const char*>(&narrow),
                      static_cast<size_t>(width));
    }
  }
  write_file(path, contents);
}

std::string refusal(const std::filesystem::path& folder, const ModelSpec& spec) {
  const auto opened = HfWeights::open(posix_file_system(), folder, spec);
  if (opened.ok()) return "";
  EXPECT_EQ(opened.error().code, Code::kConfig);
  return opened.error().message;
}

TEST(HfWeights, AnyRangeOfAnyDtypeIsReadAsFp32) {
  const test_support::TempDir folder;
  const ModelSpec spec = create(tiny(false));
  for (const char* dtype : {"F32", "BF16"}) {
    write_tensors(folder / "model.safetensors", entries_of(spec, dtype));
    auto weights = HfWeights::open(posix_file_system(), folder.path(), spec);
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    std::vector<float> got(17);
    ASSERT_TRUE(weights.value()->read("model.embed_tokens.weight", 5, got).ok());
    for (size_t i = 0; i < got.size(); ++i) {
      const float want = value_of("model.embed_tokens.weight", static_cast<int64_t>(i) + 5);
      EXPECT_EQ(got[i], std::string(dtype) == "F32" ? want : bf16_to_float(float_to_bf16(want)));
    }
  }
}

TEST(HfWeights, AnIndexNamesTheFiles) {
  const test_support::TempDir folder;
  const ModelSpec spec = create(tiny(false));
  std::vector<SafetensorsEntry> entries = entries_of(spec, "F32");
  std::string map;
  for (size_t i = 0; i < entries.size(); ++i)
    map += text(i == 0 ? "" : ",", "\"", entries[i].name, "\":\"part-", i % 2, ".safetensors\"");
  write_file(folder / "model.safetensors.index.json", text("{\"weight_map\":{", map, "}}"));
  for (size_t part = 0; part < 2; ++part) {
    std::vector<SafetensorsEntry> own;
    for (size_t i = part; i < entries.size(); i += 2) own.push_back(entries[i]);
    EXPECT_NE(refusal(folder.path(), spec), "") << "part " << part << " is not there yet";
    write_tensors(folder / text("part-", part, ".safetensors"), own);
  }
  EXPECT_EQ(refusal(folder.path(), spec), "");

  // What each rank asks of the disk (docs/SCALING.md): the index and each file's header, in two
  // reads, once; then a read a tensor for the identity.
  using test_support::Cost;
  test_support::Tally asked;
  test_support::CountingFileSystem disk(posix_file_system(), asked);
  const auto weights = HfWeights::open(disk, folder.path(), spec);
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(asked.of(Cost::kOpens), 1 + 2);
  EXPECT_EQ(asked.of(Cost::kReads), 1 + 2 * 2);
  ASSERT_TRUE(weights.value()->hash().ok());
  EXPECT_EQ(asked.of(Cost::kReads), 1 + 2 * 2 + std::ssize(entries));
}

TEST(HfWeights, WhatDoesNotFitTheModelIsNamed) {
  const test_support::TempDir folder;
  const ModelSpec spec = create(tiny(false));
  const auto path = folder / "model.safetensors";
  EXPECT_NE(refusal(folder.path(), spec).find("no model.safetensors"), std::string::npos);

  std::vector<SafetensorsEntry> entries = entries_of(spec, "F32");
  const std::string last = entries.back().name;
  entries.back().name = "model.extra.weight";
  write_tensors(path, entries);
  const std::string said = refusal(folder.path(), spec);
  EXPECT_NE(said.find("missing: " + last), std::string::npos) << said;
  EXPECT_NE(said.find("unexpected: model.extra.weight"), std::string::npos) << said;

  entries = entries_of(spec, "F32");
  entries[0].shape = {8, 10};
  write_tensors(path, entries);
  EXPECT_NE(refusal(folder.path(), spec).find("[8, 10]"), std::string::npos);

  entries = entries_of(spec, "F32");
  entries[0].dtype = "I32";
  entries[0].shape = {10, 8};
  write_tensors(path, entries);
  EXPECT_NE(refusal(folder.path(), spec).find("I32"), std::string::npos);

  write_tensors(path, entries_of(spec, "F32"));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_NE(refusal(folder.path(), spec).find("cut short"), std::string::npos);
}

TEST(HfWeights, ATiedHeadAndOldBuffersAreNotUnexpected) {
  const test_support::TempDir folder;
  std::vector<SafetensorsEntry> entries = entries_of(create(tiny(false)), "F32");
  entries.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {2}});
  write_tensors(folder / "model.safetensors", entries);
  EXPECT_EQ(refusal(folder.path(), create(tiny(true))), "");
}

TEST(HfWeights, OtherWeightsHaveAnotherHash) {
  const test_support::TempDir folder;
  const ModelSpec spec = create(tiny(true));
  const auto hash = [&] {
    return HfWeights::open(posix_file_system(), folder.path(), spec).value()->hash().value();
  };
  write_tensors(folder / "model.safetensors", entries_of(spec, "F32"));
  const std::string first = hash();
  EXPECT_EQ(first, hash());
  auto file = posix_file_system().open(folder / "model.safetensors").value();
  const int64_t end = file->size_bytes().value();
  const float other = 7;
  ASSERT_TRUE(file->write_at(std::as_bytes(std::span(&other, 1)), end - 4).ok());
  EXPECT_NE(first, hash());
}

}  // namespace
}  // namespace lockstep::hf
