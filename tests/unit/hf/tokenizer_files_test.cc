#include "hf/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace lockstep::hf {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(TokenizerFiles, GetTheNamesAndTheClassThatTransformersKnows) {
  const NamedFiles gpt2 =
      for_transformers({{"encoder.json", "{}"}, {"vocab.bpe", "#version"}}, "e");
  ASSERT_EQ(gpt2.size(), 3u);
  EXPECT_THAT(gpt2[0], Pair("vocab.json", "{}"));
  EXPECT_THAT(gpt2[1], Pair("merges.txt", "#version"));
  EXPECT_EQ(gpt2[2].first, "tokenizer_config.json");
  const auto config = nlohmann::json::parse(gpt2[2].second);
  EXPECT_EQ(config["tokenizer_class"], "GPT2Tokenizer");
  EXPECT_EQ(config["eos_token"], "e");
  const NamedFiles trained = for_transformers({{"tokenizer.json", "{}"}}, "");
  ASSERT_EQ(trained.size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(trained[1].second)["tokenizer_class"], "PreTrainedTokenizerFast");
}

TEST(TokenizerFiles, WhatIsThereStaysAsItIs) {
  const NamedFiles whole{{"tokenizer.json", "{}"}, {"tokenizer_config.json", "{\"a\": 1}"}};
  EXPECT_EQ(for_transformers(whole, "e"), whole);
  EXPECT_THAT(for_transformers({{"tokenizer.model", "x"}}, "e"),
              ElementsAre(Pair("tokenizer.model", "x")));
}

}  // namespace
}  // namespace lockstep::hf
