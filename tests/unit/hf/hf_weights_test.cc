#include "hf/hf_weights.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/float16.h"
#include "base/hash.h"
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

void write_tensors(const std::filesystem::path& path, std::vector<SafetensorsEntry> entries,
                   bool equal_head = false) {
  SafetensorsHeader header{std::move(entries), {}};
  std::string contents = safetensors_preamble(header);
  for (const SafetensorsEntry& e : header.entries) {
    const int64_t width = e.dtype == "F32" ? 4 : 2;
    for (int64_t i = 0; i < (e.end - e.begin) / width; ++i) {
      const bool as_tokens = equal_head && e.name == "lm_head.weight";
      const float value = value_of(as_tokens ? "model.embed_tokens.weight" : e.name, i);
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

HfWeights told_of(FileSystem& file_system, const std::filesystem::path& folder,
                  const HfWeights& weights) {
  return {file_system, folder, parse_weight_places(encode(weights.places())).value()};
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

  // What rank 0 asks of the disk (docs/SCALING.md): the index and each file's header, in two reads,
  // once; then a read a tensor for the identity.
  using test_support::Cost;
  test_support::Tally asked;
  test_support::CountingFileSystem disk(posix_file_system(), asked);
  const auto weights = HfWeights::open(disk, folder.path(), spec);
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(asked.of(Cost::kOpens), 1 + 2);
  EXPECT_EQ(asked.of(Cost::kReads), 1 + 2 * 2);
  const std::string hash = weights.value()->hash().value();
  EXPECT_EQ(asked.of(Cost::kReads), 1 + 2 * 2 + std::ssize(entries));
  EXPECT_EQ(weights.value()->hash().value(), hash);
  EXPECT_EQ(asked.of(Cost::kReads), 1 + 2 * 2 + std::ssize(entries));

  // Another rank: nothing until it reads; then the file, and the beginning of the tensor, once.
  asked.reset();
  HfWeights told = told_of(disk, folder.path(), *weights.value());
  EXPECT_EQ(told.hash().value(), hash);
  EXPECT_EQ(asked.calls(), 0);
  for (const int64_t times : {1, 2}) {
    std::vector<float> got(3);
    ASSERT_TRUE(told.read(entries[1].name, 2, got).ok());
    EXPECT_EQ(got[0], value_of(entries[1].name, 2));
    EXPECT_EQ(asked.of(Cost::kOpens), 1);
    EXPECT_EQ(asked.of(Cost::kReads), 1 + times);
  }
}

TEST(HfWeights, WhoWasToldOfAFileNamesItWhereItIsAnotherOne) {
  const test_support::TempDir folder;
  const ModelSpec spec = create(tiny(false));
  const auto path = folder / "model.safetensors";
  write_tensors(path, entries_of(spec, "F32"));
  const auto weights = HfWeights::open(posix_file_system(), folder.path(), spec).value();
  ASSERT_TRUE(weights->hash().ok());
  const auto read = [&](const std::string& name) -> std::string {
    std::vector<float> got(1);
    const auto done =
        told_of(posix_file_system(), folder.path(), *weights).read(name, /*flat_start=*/1, got);
    if (done.ok()) return "";
    EXPECT_EQ(done.error().code, Code::kConfig);
    EXPECT_NE(done.error().message.find(path.string()), std::string::npos);
    return done.error().message;
  };
  const std::string tensor = "model.norm.weight", other_tensor = "lm_head.weight";
  EXPECT_EQ(read(tensor), "");
  const float other = 7;
  const auto file = posix_file_system().open(path).value();
  const int64_t begin = weights->places().tensors.at(tensor).entry.begin;
  ASSERT_TRUE(file->write_at(std::as_bytes(std::span(&other, 1)), begin).ok());
  EXPECT_NE(read(tensor).find("tensor model.norm.weight has other first values"),
            std::string::npos);
  EXPECT_EQ(read(other_tensor), "");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + 4);
  EXPECT_NE(read(other_tensor).find("it has "), std::string::npos);
  std::filesystem::remove(path);
  EXPECT_NE(read(other_tensor), "");
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
  EXPECT_NE(refusal(folder.path(), spec).find("truncated"), std::string::npos);
}

TEST(HfWeights, AllShapesThatContradictConfigJsonAreNamedWithTheirFields) {
  const test_support::TempDir folder;
  const ModelSpec spec = create(tiny(false));
  std::vector<SafetensorsEntry> entries = entries_of(spec, "F32");
  for (SafetensorsEntry& e : entries) {
    if (e.name == "model.embed_tokens.weight") e.shape = {11, 8};
    if (e.name == "model.layers.0.mlp.gate_proj.weight") e.shape = {16, 8};
  }
  write_tensors(folder / "model.safetensors", entries);
  const std::string said = refusal(folder.path(), spec);
  for (const char* words :
       {"model.embed_tokens.weight has shape [11, 8], but config.json asks for [10, 8] by "
        "vocab_size",
        "gate_proj.weight has shape [16, 8], but config.json asks for [12, 8] by "
        "intermediate_size"})
    EXPECT_NE(said.find(words), std::string::npos) << said;
}

TEST(HfWeights, AnotherHeadThanTheEmbeddingOfATiedModelIsRefused) {
  const test_support::TempDir folder;
  const ModelSpec tied = create(tiny(true));
  std::vector<SafetensorsEntry> entries = entries_of(tied, "F32");
  entries.push_back({"lm_head.weight", "F32", {10, 8}});
  write_tensors(folder / "model.safetensors", entries);
  const std::string said = refusal(folder.path(), tied);
  for (const char* words :
       {"tie_word_embeddings", "lm_head.weight is not model.embed_tokens.weight", "element 0 is",
        "\"tie_word_embeddings\": false"})
    EXPECT_NE(said.find(words), std::string::npos) << said;
  entries.back().shape = {9, 8};
  write_tensors(folder / "model.safetensors", entries);
  EXPECT_NE(refusal(folder.path(), tied).find("its shape is [9, 8]"), std::string::npos);
}

TEST(HfWeights, APointerOfGitLfsIsNamedAsSuch) {
  const test_support::TempDir folder;
  const ModelSpec spec = create(tiny(false));
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n";
  write_file(folder / "model.safetensors", pointer);
  EXPECT_NE(refusal(folder.path(), spec).find("git lfs pull"), std::string::npos);
  std::filesystem::rename(folder / "model.safetensors", folder / "model.safetensors.index.json");
  EXPECT_NE(refusal(folder.path(), spec).find("git lfs pull"), std::string::npos);
}

TEST(HfWeights, AnEqualTiedHeadAndOldBuffersAreNotUnexpected) {
  const test_support::TempDir folder;
  std::vector<SafetensorsEntry> entries = entries_of(create(tiny(true)), "F32");
  entries.push_back({"lm_head.weight", "F32", {10, 8}});
  entries.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {2}});
  write_tensors(folder / "model.safetensors", entries, /*equal_head=*/true);
  EXPECT_EQ(refusal(folder.path(), create(tiny(true))), "");
  // bfloat16 has no 32.125.
  entries[entries.size() - 2].dtype = "BF16";
  write_tensors(folder / "model.safetensors", entries, /*equal_head=*/true);
  EXPECT_NE(refusal(folder.path(), create(tiny(true))).find("element 57 is 32 and 32.125"),
            std::string::npos);
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

// It is in checkpoints, so it stays what it is.
TEST(HfWeights, TheHashIsOfAllTensorsInTheOrderOfTheirNames) {
  const test_support::TempDir folder;
  DecoderShape shape = tiny(false);
  shape.n_layers = 30;
  const ModelSpec spec = create(shape);
  write_tensors(folder / "model.safetensors", entries_of(spec, "F32"));
  const auto weights = HfWeights::open(posix_file_system(), folder.path(), spec).value();
  const auto& tensors = weights->places().tensors;
  EXPECT_GT(std::ssize(tensors), 256) << "more than are read at once";
  Xxh3Stream stream;
  for (const auto& [name, tensor] : tensors) {
    const auto& sizes = tensor.entry.shape;
    stream.update(as_bytes(text(name, "F32[", sizes[0])));
    if (sizes.size() == 2) stream.update(as_bytes(text(", ", sizes[1])));
    stream.update(as_bytes("]"));
    const int64_t elements = (tensor.entry.end - tensor.entry.begin) / 4;
    std::vector<float> values;
    for (int64_t i = 0; i < elements; ++i) values.push_back(value_of(name, i));
    stream.update(std::as_bytes(std::span(values)));
  }
  EXPECT_EQ(weights->hash().value(), hex64(stream.digest()));
}

}  // namespace
}  // namespace lockstep::hf
