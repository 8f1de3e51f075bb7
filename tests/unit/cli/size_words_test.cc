#include "cli/shared/size_words.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

TEST(SizeWords, PowersOf1000AndOf1024) {
  EXPECT_EQ(bytes_of_words("40GB"), 40'000'000'000);
  EXPECT_EQ(bytes_of_words("80GiB"), int64_t{80} << 30);
  EXPECT_EQ(bytes_of_words("1.5 TiB"), int64_t{3} << 39);
  EXPECT_EQ(bytes_of_words("100kb"), 100'000);
  EXPECT_EQ(bytes_of_words("0.1 MiB"), 104857);
  EXPECT_EQ(bytes_of_words("512 B"), 512);
  EXPECT_EQ(bytes_of_words("4096"), 4096);
}

TEST(SizeWords, WhatIsNoSizeIsRefused) {
  for (const char* word : {"", "big", "GB", "-1GB", "0", "0.5B", "1.2.3GB", "5 G", "5Gi", "5 GBs",
                           "9999999TB", "nan", "inf"})
    EXPECT_FALSE(bytes_of_words(word).has_value()) << word;
}

}  // namespace
}  // namespace lockstep::cli
