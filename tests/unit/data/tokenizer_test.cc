#include "data/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

TEST(ByteTokenizer, EveryByteIsItsOwnIdAndComesBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const ByteTokenizer tokenizer;
  std::vector<uint32_t> ids = {7};  // encode appends
  ASSERT_TRUE(tokenizer.encode(all, ids).ok());
  ASSERT_EQ(ids.size(), 257u);
  EXPECT_EQ(ids[0], 7u);
  for (uint32_t byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[byte + 1], byte);
  const auto back = tokenizer.decode(std::span(ids).subspan(1));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value(), all);
}

TEST(ByteTokenizer, EndOfDocumentDecodesToNothing) {
  const std::vector<uint32_t> ids = {'a', ByteTokenizer::kEndOfDocument, 'b'};
  EXPECT_EQ(ByteTokenizer().decode(ids).value(), "ab");
  EXPECT_EQ(ByteTokenizer().decode(ids, true).value(), "a<|end|>b");
  EXPECT_EQ(ByteTokenizer().special_id("<|end|>"), ByteTokenizer::kEndOfDocument);
}

TEST(ByteTokenizer, AnIdOutsideTheVocabularyIsAnError) {
  const std::vector<uint32_t> ids = {'a', 257};
  const auto decoded = ByteTokenizer().decode(ids);
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.error().code, Code::kConfig);
  EXPECT_THAT(decoded.error().message, testing::HasSubstr("257"));
}

TEST(ByteTokenizer, HashIsGolden) { EXPECT_EQ(ByteTokenizer().hash(), "dfcf436355349ffd"); }

}  // namespace
}  // namespace lockstep::data
