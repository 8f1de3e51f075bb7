#include "hf/weight_places.h"

#include <gtest/gtest.h>

namespace lockstep::hf {
namespace {

TEST(WeightPlaces, AreReadAsTheyWereWritten) {
  WeightPlaces places;
  places.files = {{"a.safetensors", int64_t{5} << 40}, {"b.safetensors", 24}};
  places.tensors["model.norm.weight"] = {
      1, {"model.norm.weight", "BF16", {2, 4}, 8, 24}, ~uint64_t{0}};
  places.hash = "00ff";
  const std::string words = encode(places);
  const auto read = parse_weight_places(words);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().files[0].bytes, int64_t{5} << 40);
  const WeightPlaces::Tensor& tensor = read.value().tensors.at("model.norm.weight");
  EXPECT_EQ(tensor.file, 1u);
  EXPECT_EQ(tensor.entry.name, "model.norm.weight");
  EXPECT_EQ(tensor.entry.dtype, "BF16");
  EXPECT_EQ(tensor.entry.end, 24);
  EXPECT_EQ(tensor.beginning, ~uint64_t{0});
  EXPECT_EQ(encode(read), words);
  EXPECT_TRUE(parse_weight_places(encode(WeightPlaces())).value().files.empty());
}

TEST(WeightPlaces, AnErrorIsTheWritersAndOtherWordsAreAnotherVersions) {
  const auto told = parse_weight_places(encode(Error{Code::kConfig, "model.safetensors: \"x\""}));
  EXPECT_EQ(told.error().code, Code::kConfig);
  EXPECT_EQ(told.error().message, "model.safetensors: \"x\"");
  for (const char* words : {"", "{}", "[]", "{\"message\": 1}",
                            R"({"files": [], "tensors": [["w", 0, "F32", [1], 8, 12, 1]],
                                "hash": "00"})"})
    EXPECT_EQ(parse_weight_places(words).error().code, Code::kPeerLost) << words;
}

}  // namespace
}  // namespace lockstep::hf
