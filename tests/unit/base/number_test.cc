#include "base/number.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ParseNumber, TakesTheWholeWordOrNothing) {
  EXPECT_EQ(parse_number("0"), 0);
  EXPECT_EQ(parse_number("-17"), -17);
  EXPECT_EQ(parse_number("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(parse_number<uint64_t>("ffffffffffffffff", 16), UINT64_MAX);
  for (const char* word : {"", "-", "+1", " 1", "1 ", "4x", "0x4", "1.5", "9223372036854775808"})
    EXPECT_FALSE(parse_number(word)) << word;
  EXPECT_FALSE(parse_number<uint16_t>("65536"));
  EXPECT_FALSE(parse_number<uint64_t>("-1"));
}

}  // namespace
}  // namespace lockstep
