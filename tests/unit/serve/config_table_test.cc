// Configs of runs side by side.
#include "cli/serve/config_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;

const ConfigRow& row_of(const std::vector<ConfigRow>& rows, const std::string& key) {
  for (const ConfigRow& row : rows)
    if (row.key == key) return row;
  static const ConfigRow none;
  ADD_FAILURE() << "no row " << key;
  return none;
}

TEST(ConfigTable, NamesWhatDiffers) {
  const auto a = ordered_json::parse(
      R"({"config": {"training": {"steps": 10, "lr": 0.1}, "data": {"sources": ["x", "y"]}},
          "world_size": 2, "identity": ["not shown"]})");
  const auto b = ordered_json::parse(
      R"({"config": {"training": {"steps": 20, "lr": 0.1, "seed": 3},
                     "data": {"sources": ["x", "y"]}}, "world_size": 4})");
  const auto rows = config_table({a, b});
  std::vector<std::string> keys;
  for (const ConfigRow& row : rows) keys.push_back(row.key);
  EXPECT_THAT(keys, ElementsAre("training.steps", "training.lr", "data.sources", "world_size",
                                "training.seed"));
  EXPECT_THAT(row_of(rows, "training.steps").values, ElementsAre("10", "20"));
  EXPECT_TRUE(row_of(rows, "training.steps").differs);
  EXPECT_FALSE(row_of(rows, "training.lr").differs);
  EXPECT_THAT(row_of(rows, "data.sources").values, ElementsAre(R"(["x","y"])", R"(["x","y"])"));
  EXPECT_FALSE(row_of(rows, "data.sources").differs);
  EXPECT_THAT(row_of(rows, "training.seed").values, ElementsAre("", "3"));
  EXPECT_TRUE(row_of(rows, "training.seed").differs);
  EXPECT_TRUE(row_of(rows, "world_size").differs);
}

TEST(ConfigTable, ARunWithoutAConfigDiffersInNothing) {
  const auto a = ordered_json::parse(R"({"config": {"training": {"steps": 10}, "odd": 3}})");
  const auto rows = config_table({ordered_json(), a, a});
  EXPECT_THAT(row_of(rows, "training.steps").values, ElementsAre("", "10", "10"));
  EXPECT_FALSE(row_of(rows, "training.steps").differs);
  EXPECT_THAT(row_of(rows, "odd").values, ElementsAre("", "3", "3"));
  EXPECT_TRUE(config_table({}).empty());
  EXPECT_TRUE(config_table({ordered_json::parse(R"({"config": [1]})")}).empty());
}

}  // namespace
}  // namespace lockstep::cli
