#include "base/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/hash.h"

namespace lockstep {
namespace {

TEST(Text, JoinsValues) {
  EXPECT_EQ(text("step ", 3, " of ", 10), "step 3 of 10");
  EXPECT_EQ(text(), "");
}

TEST(Text, BytesInBinaryUnits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(1048575), "1.00 MiB");
  EXPECT_EQ(bytes_text(uint64_t{3} << 30), "3.00 GiB");
  EXPECT_EQ(bytes_text(std::numeric_limits<uint64_t>::max()), "16.00 EiB");
}

TEST(Text, ZeroPadded) {
  EXPECT_EQ(zero_padded(7, 5), "00007");
  EXPECT_EQ(zero_padded(12345, 5), "12345");
  EXPECT_EQ(zero_padded(123456, 5), "123456");
  EXPECT_EQ(zero_padded(0, 0), "0");
}

TEST(Text, CountedAndGroupedThousands) {
  EXPECT_EQ(counted(0, "node"), "0 nodes");
  EXPECT_EQ(counted(1, "node"), "1 node");
  EXPECT_EQ(counted(12, "node"), "12 nodes");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(5847), "5,847");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(grouped(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Text, FixedAndDuration) {
  EXPECT_EQ(fixed(3.14159, 2), "3.14");
  EXPECT_EQ(fixed(-0.5, 0), "-0");
  EXPECT_EQ(fixed(1e300, 1).size(), 303u);
  EXPECT_EQ(duration_text(75.2), "0:01:15");
  EXPECT_EQ(duration_text(360000), "100:00:00");
  EXPECT_EQ(duration_text(std::nan("")), "?");
}

TEST(Text, HexFloatReadsBackToTheSameBits) {
  EXPECT_EQ(hex_float(3.0), "0x1.8p+1");
  EXPECT_EQ(hex_float(std::nan("")), "nan");
  EXPECT_EQ(hex_float(-std::numeric_limits<double>::infinity()), "-inf");
  int numbers = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    const double value = std::bit_cast<double>(mix64(i));
    if (std::isnan(value)) continue;
    const auto back = parse_hex_float(hex_float(value));
    ASSERT_TRUE(back.has_value()) << hex_float(value);
    ASSERT_EQ(std::bit_cast<uint64_t>(*back), std::bit_cast<uint64_t>(value));
    ++numbers;
  }
  EXPECT_GT(numbers, 19000);
  EXPECT_TRUE(std::signbit(*parse_hex_float(hex_float(-0.0))));
  EXPECT_EQ(parse_hex_float(hex_float(5e-324)), 5e-324);
}

TEST(Text, ParseHexFloatRefusesMoreOrLessThanANumber) {
  EXPECT_FALSE(parse_hex_float("").has_value());
  EXPECT_FALSE(parse_hex_float(" 1").has_value());
  EXPECT_FALSE(parse_hex_float("0x1p+1 ").has_value());
  EXPECT_FALSE(parse_hex_float("loss").has_value());
  EXPECT_EQ(parse_hex_float("2.5"), 2.5);
}

TEST(Text, EditDistanceAndNearest) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("steps", ""), 5);
  EXPECT_EQ(edit_distance("setps", "steps"), 1);
  EXPECT_EQ(nearest("stepz", {"slots", "steps", "seed"}), "steps");
  EXPECT_EQ(nearest("zzzzzz", {"slots", "steps"}), "");
  EXPECT_EQ(nearest("setps", {"slots", "steps"}), "steps");
  EXPECT_EQ(nearest("gpus", {"eps"}), "");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(nearest("x", {"y"}), "");
}

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("2,3,1", ','), (std::vector<std::string>{"2", "3", "1"}));
  EXPECT_EQ(split(",a,", ','), (std::vector<std::string>{"", "a", ""}));
  EXPECT_EQ(split("", ','), (std::vector<std::string>{""}));
}

}  // namespace
}  // namespace lockstep
