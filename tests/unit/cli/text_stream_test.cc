#include "cli/generate/text_stream.h"

#include <gtest/gtest.h>

#include "cli/generate/sampling_run.h"
#include "data/prepare/text_reader.h"

namespace lockstep::cli {
namespace {

const data::ByteTokenizer bytes;

// The pieces that `text`, byte by byte, is shown in; the last one is what end() gives.
std::vector<std::string> pieces(const std::string& text, std::vector<std::string> stops = {}) {
  TextStream stream(bytes, std::move(stops));
  std::vector<std::string> all;
  for (const char c : text) {
    if (stream.stopped()) break;
    all.push_back(stream.add(static_cast<unsigned char>(c)).value());
  }
  all.push_back(stream.end());
  return all;
}

std::string joined(const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& each : all) text += each;
  return text;
}

TEST(TextStream, ACharacterOfSeveralBytes_GoesOutWhole) {
  EXPECT_EQ(pieces("aé€😀"),
            (std::vector<std::string>{"a", "", "é", "", "", "€", "", "", "", "😀", ""}));
}

TEST(TextStream, EveryPieceIsValidUtf8_WhateverTheBytes) {
  for (const std::string text : {"\xff", "a\x80z", "\xe2\x82", "\xe2\x28\xa1", "\xf0\x9f\x98",
                                 "é\xc3", "\xed\xa0\x80x", "\xc0\xafz"}) {
    for (const std::string& piece : pieces(text))
      EXPECT_FALSE(data::find_invalid_utf8(piece)) << piece;
    EXPECT_EQ(joined(pieces(text)), valid_utf8(text));
  }
  EXPECT_EQ(valid_utf8("a\x80z"), "a\xef\xbf\xbdz");
}

TEST(TextStream, AStopText_EndsTheTextBeforeItAndIsNeverShown) {
  TextStream stream(bytes, {"END", "\n\n"});
  std::string shown;
  for (const char c : std::string("a\nbEND")) {
    ASSERT_FALSE(stream.stopped());
    shown += stream.add(static_cast<unsigned char>(c)).value();
    EXPECT_EQ(shown.find('E'), shown.npos);
  }
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(shown + stream.end(), "a\nb");
  EXPECT_EQ(stream.text(), "a\nb");
}

TEST(TextStream, WhatMayBecomeAStopText_IsHeldBackAndThenShown) {
  EXPECT_EQ(pieces("xENtE", {"END"}), (std::vector<std::string>{"x", "", "", "ENt", "", "E"}));
  EXPECT_EQ(pieces("aab", {"aac"}), (std::vector<std::string>{"", "", "aab", ""}));
}

TEST(TextStream, TheFirstOfSeveralStopTexts_Counts) {
  EXPECT_EQ(joined(pieces("one two three", {"three", "two"})), "one ");
}

TEST(TextStream, SpecialTokens_AreShownOnRequestAlone) {
  TextStream hidden(bytes, {}), named(bytes, {}, /*show_special=*/true);
  EXPECT_EQ(hidden.add(data::ByteTokenizer::kEndOfDocument).value(), "");
  EXPECT_EQ(named.add(data::ByteTokenizer::kEndOfDocument).value(), "<|end|>");
}

TEST(TokensInContext, WhatFitsIsGiven_WhatDoesNotIsAnError) {
  EXPECT_EQ(tokens_in_context(/*context=*/1000, /*wanted=*/0, /*prompt=*/10).value(),
            kDefaultTokens);
  EXPECT_EQ(tokens_in_context(100, 0, 10).value(), 90);  // not given: what there is room for
  EXPECT_EQ(tokens_in_context(100, 90, 10).value(), 90);
  EXPECT_EQ(tokens_in_context(100, 95, 10, /*fewer=*/true).value(), 90);
  EXPECT_EQ(tokens_in_context(0, 5000, 10).value(), 5000);  // the context is not known
  const auto more = tokens_in_context(100, 91, 10);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, Code::kConfig);
  for (const char* word : {"10 tokens", "91", "100", "--tokens 90"})
    EXPECT_NE(more.error().message.find(word), std::string::npos) << more.error().message;
  for (const int64_t wanted : {0, 5}) {
    const auto full = tokens_in_context(100, wanted, 100);
    ASSERT_FALSE(full.ok());
    EXPECT_NE(full.error().message.find("shorter prompt"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::cli
