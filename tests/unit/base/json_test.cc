#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

using nlohmann::json;

std::string nested(int levels, const std::string& inside) {
  return std::string(static_cast<size_t>(levels), '[') + inside +
         std::string(static_cast<size_t>(levels), ']');
}

TEST(ParseJson, ReadsWhatIsNotTooDeep) {
  EXPECT_EQ(parse_json("{\"a\":[1,2]}")["a"][1], 2);
  EXPECT_EQ(parse_json(nested(kMaxJsonLevels, "7")).dump(), nested(kMaxJsonLevels, "7"));
  // Brackets in a string, one after an escaped quote among them, are text.
  const std::string brackets(1000, '[');
  EXPECT_EQ(parse_json("[\"\\\"" + brackets + "\"]")[0], "\"" + brackets);
  EXPECT_EQ(parse_json<nlohmann::ordered_json>("{\"b\":1,\"a\":2}").dump(), "{\"b\":1,\"a\":2}");
}

TEST(ParseJson, WhatIsTooDeepIsRefusedBeforeItIsBuilt) {
  for (const int levels : {kMaxJsonLevels + 1, 100'000, 10'000'000}) {
    EXPECT_TRUE(parse_json(nested(levels, ""), false).is_discarded()) << levels;
    EXPECT_THROW(parse_json(nested(levels, "")), json::exception) << levels;
  }
  EXPECT_TRUE(parse_json("{\"a\":" + nested(100, "") + "}", false).is_discarded());
}

TEST(ParseJson, WhatIsNoJsonIsRefused) {
  for (const char* contents : {"", "{", "]", "\"", "\"\\", "{]", "[1", "nul"}) {
    EXPECT_TRUE(parse_json(contents, false).is_discarded()) << contents;
    EXPECT_THROW(parse_json(contents), json::exception) << contents;
  }
}

}  // namespace
}  // namespace lockstep
