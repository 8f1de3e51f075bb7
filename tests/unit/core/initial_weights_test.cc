// The weights of a Hugging Face folder: rank 0 alone looks at its files, and every rank reads its
// own tiles.
#include <set>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/json.h"
#include "base/safetensors.h"
#include "core/comm/tree_communicator.h"
#include "core/train/run_inputs.h"
#include "tests/support/counting_file_system.h"
#include "tests/support/ranks_at_once.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/core/strategies.h"

namespace lockstep::core {
namespace {

using test_support::Cost;

constexpr double kPatience_s = 120;

float value_of(const std::string& name, int64_t i) {
  return static_cast<float>(name.size()) + static_cast<float>(i) / 8;
}

// A folder with a file for each tensor of the model.
class InitialWeightsTest : public testing::Test {
 protected:
  InitialWeightsTest() {
    nlohmann::json map;
    for (const layout::UnitSpec& unit : spec_.units)
      for (const layout::ParamSpec& param : unit.params) {
        const std::string name = param.name + ".safetensors";
        write(param, folder_ / name);
        map[param.name] = name;
        files_.push_back(folder_ / name);
      }
    publish(folder_ / kSafetensorsIndexFile, nlohmann::json{{"weight_map", map}}.dump());
    config_.model.hf_assets_path = folder_.path().string();
  }

  static void publish(const std::filesystem::path& path, const std::string& contents) {
    ASSERT_TRUE(publish_file(posix_file_system(), path, contents).ok());
  }
  static void write(const layout::ParamSpec& param, const std::filesystem::path& path) {
    SafetensorsHeader header{{{param.name, "F32", param.shape}}, {}};
    std::string contents = safetensors_preamble(header);
    for (int64_t i = 0; i < param.elements(); ++i) {
      const float value = value_of(param.name, i);
      contents.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    publish(path, contents);
  }

  // What each rank has of shared_initial_weights, which go along the tree.
  auto shared(int world_size, const std::vector<std::unique_ptr<FileSystem>>& disks) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    ThreadCommunicator alone(std::make_shared<ThreadHub>(1), 0);
    return test_support::ranks_at_once(world_size, [&](int rank) {
      const std::vector<int> one_node(static_cast<size_t>(world_size));
      const GlooOptions place{rank, world_size, one_node, "", "lo", 1, kPatience_s, kPatience_s};
      const auto tree = world_size > 1 ? connect_tree(place, store) : nullptr;
      Communicator& all = tree ? static_cast<Communicator&>(*tree) : alone;
      return shared_initial_weights(*disks[static_cast<size_t>(rank)], config_, spec_, all);
    });
  }

  const Setting setting_;
  Config config_ = setting_.config();
  const layout::ModelSpec spec_ = hf::configured_model(config_, 40).value();
  const test_support::TempDir folder_;
  std::vector<std::filesystem::path> files_;
};

// Disks of `world_size` ranks that count.
struct Disks {
  explicit Disks(int world_size) : asked(static_cast<size_t>(world_size)) {
    for (test_support::Tally& tally : asked)
      of_rank.push_back(
          std::make_unique<test_support::CountingFileSystem>(posix_file_system(), tally));
  }
  std::vector<test_support::Tally> asked;
  std::vector<std::unique_ptr<FileSystem>> of_rank;
};

// Opens and reads of a rank follow from what it reads tiles from (docs/SCALING.md).
TEST_F(InitialWeightsTest, ARankOpensTheFilesThatItReadsTilesFromAndRankZeroAll) {
  const auto all = static_cast<int64_t>(files_.size());
  for (const int w : {1, 3, 9}) {
    Disks disks(w);
    const auto weights = shared(w, disks.of_rank);
    ThreadGroups groups(w, layout::group_sizes(config_, w, 0));
    std::map<std::string, std::vector<float>> whole;
    int64_t most = 0;
    for (int rank = 0; rank < w; ++rank) {
      const auto& mine = weights[static_cast<size_t>(rank)];
      ASSERT_TRUE(mine.ok()) << mine.error().message;
      EXPECT_EQ(mine.value()->hash().value(), weights[0].value()->hash().value());
      const test_support::Tally& asked = disks.asked[static_cast<size_t>(rank)];
      EXPECT_TRUE(rank == 0 || asked.calls() == 0) << asked.calls() << " calls of " << rank;
      TrainingStep model(config_, spec_, groups.of(rank));
      ASSERT_TRUE(model.initialize(mine.value().get()).ok());
      std::set<std::string> tensors;
      int64_t tiles = 0;
      for (auto& unit : model.units())
        for (const Segment& s : unit->state.held_segments()) {
          tensors.insert(unit->spec.params[static_cast<size_t>(s.param)].name);
          ++tiles;
        }
      const auto own = std::ssize(tensors);
      most = std::max(most, own);
      EXPECT_EQ(asked.of(Cost::kOpens), rank == 0 ? 1 + all : own) << w << " " << rank;
      EXPECT_EQ(asked.of(Cost::kReads), tiles + (rank == 0 ? 1 + 3 * all : own)) << w << rank;
      collect(model, whole);
    }
    EXPECT_TRUE(w < 9 || most < all / 2) << most << " of " << all << " files";
    for (const layout::UnitSpec& unit : spec_.units)
      for (const layout::ParamSpec& param : unit.params) {
        const std::vector<float>& got = whole.at(param.name + " w");
        ASSERT_EQ(std::ssize(got), param.elements());
        for (int64_t i = 0; i < param.elements(); ++i)
          ASSERT_EQ(got[static_cast<size_t>(i)], value_of(param.name, i)) << param.name << " " << i;
      }
  }
}

TEST_F(InitialWeightsTest, WhatRankZeroFindsWrongIsEveryRanksError) {
  constexpr int kRanks = 9;
  Disks disks(kRanks);
  const auto expect_error = [&](const std::string& said) {
    const auto results = shared(kRanks, disks.of_rank);
    for (const auto& result : results) {
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code, Code::kConfig);
      EXPECT_NE(result.error().message.find(said), std::string::npos) << result.error().message;
      EXPECT_EQ(result.error().message, results[0].error().message);
    }
  };
  std::filesystem::resize_file(files_[3], std::filesystem::file_size(files_[3]) - 1);
  expect_error(files_[3].string() + ": tensor ");
  std::filesystem::remove(files_[3]);
  expect_error(files_[3].string());
  for (int rank = 1; rank < kRanks; ++rank)
    EXPECT_EQ(disks.asked[static_cast<size_t>(rank)].calls(), 0);
  config_.model.init = InitialWeights::kRandom;
  for (const auto& result : shared(kRanks, disks.of_rank)) {
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result.value(), nullptr);
  }
}

}  // namespace
}  // namespace lockstep::core
