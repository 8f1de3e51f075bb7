// Lists of strings: one grammar on the command line and in files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_field.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/config/config_from.h"

namespace lockstep {
namespace {

using test_support::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ConfigFlags, AListIsReadAsTheFileReadsIt) {
  const auto sources = [](const std::string& word) {
    return from_flags({"--data.sources", word}).data.sources;
  };
  EXPECT_THAT(sources("/a b/c,/d"), ElementsAre("/a b/c", "/d"));
  EXPECT_THAT(sources(" /a b/c , /d\t"), ElementsAre("/a b/c", "/d"));
  EXPECT_THAT(sources("/it's,/d"), ElementsAre("/it's", "/d"));
  TempDir dir;
  for (const std::string list : {"[\"/a b/c\", '/d,e', \"\"]", "['a\\', \"\\\"\\u00e9 \"]", "[ ]",
                                 "['x', 'y', ]", "['[z]']"}) {
    const auto file = from_toml(dir, "[data]\nsources = " + list + "\n");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(sources(list), file.value().config.data.sources) << list;
  }
  for (const std::string wrong : {"'/a", "\"/a\\", "\"a\"b", "'a' 'b'", "\"\\q\""})
    EXPECT_THAT(flag_error({"--data.sources", wrong}), HasSubstr("list of strings")) << wrong;
}

TEST(ConfigOutput, AListIsWrittenAsItIsRead) {
  const ConfigField& field = *find_config_field("data", "sources");
  Config config;
  for (const std::vector<std::string>& list : {std::vector<std::string>{"/a b/c", "/d"},
                                               {"/a,b"},
                                               {""},
                                               {},
                                               {" a", "b "},
                                               {"[a", "b]"},
                                               {"\"a\"", "'b'"},
                                               {"it's", "a\\b"}}) {
    config.data.sources = list;
    EXPECT_EQ(from_flags({"--data.sources", value_text(config, field)}).data.sources, list);
  }
  config.data.sources = {"/a b/c", "/d"};
  EXPECT_EQ(value_text(config, field), "/a b/c,/d");
}

TEST(ConfigFlags, ListsOfStrings) {
  EXPECT_THAT(
      from_flags({"--checkpoint.exclude_from_loading=[a.*, b]"}).checkpoint.exclude_from_loading,
      ElementsAre("a.*", "b"));
  EXPECT_THAT(from_flags({"--checkpoint.exclude_from_loading="}).checkpoint.exclude_from_loading,
              ElementsAre());
  EXPECT_THAT(toml_error("[checkpoint]\nexclude_from_loading = [1]\n"),
              HasSubstr("must be of type list of strings"));
}

}  // namespace
}  // namespace lockstep
