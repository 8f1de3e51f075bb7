#include "config/toml_numbers.h"

#include <gtest/gtest.h>

#include "base/file_system.h"
#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

using test_support::TempDir;

Result<std::vector<TomlNumber>> read(const TempDir& dir, const std::string& contents) {
  const std::filesystem::path path = dir.path() / "rates.toml";
  EXPECT_TRUE(publish_file(posix_file_system(), path, contents).ok());
  return read_toml_numbers(path);
}

TEST(TomlNumbers, WholeAndRealOnesWithTheirPlaces) {
  TempDir dir;
  const auto numbers = read(dir, "b = 2.5  # a rate\na = 3\n");
  ASSERT_TRUE(numbers.ok());
  ASSERT_EQ(numbers.value().size(), 2u);
  EXPECT_EQ(numbers.value()[0].key, "a");
  EXPECT_EQ(numbers.value()[0].value, 3);
  EXPECT_TRUE(numbers.value()[0].place.ends_with("rates.toml:2"));
  EXPECT_EQ(numbers.value()[1].value, 2.5);
}

TEST(TomlNumbers, WhatIsNoNumberIsNamedWithItsLine) {
  TempDir dir;
  for (const auto& [contents, said] : std::initializer_list<std::pair<const char*, const char*>>{
           {"a = 1\nb = \"2\"\n", "rates.toml:2: b is of type string"},
           {"[h100]\na = 1\n", "rates.toml:1: h100 is of type table"},
           {"a = 1\na = 2\n", "rates.toml:2"},
           {"a = \n", "rates.toml:1"}}) {
    const auto numbers = read(dir, contents);
    ASSERT_FALSE(numbers.ok()) << contents;
    EXPECT_EQ(numbers.error().code, Code::kConfig);
    EXPECT_NE(numbers.error().message.find(said), std::string::npos) << numbers.error().message;
  }
  EXPECT_EQ(read_toml_numbers(dir.path() / "none.toml").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace lockstep
