// Wrap policies join consecutive units and move nothing.
#include <gmock/gmock.h>

#include "layout/wrap.h"
#include "tests/unit/layout/small_model.h"

namespace lockstep::layout {
namespace {

using testing::ElementsAre;

std::vector<std::string> names(const std::vector<WrappedUnit>& runs) {
  std::vector<std::string> list;
  for (const WrappedUnit& run : runs) list.push_back(run.spec.name);
  return list;
}

TEST(Wrap, EveryPolicyKeepsAllParametersInOrder) {
  for (bool tied : {false, true})
    for (WrapPolicy policy : {WrapPolicy::kModuleWrap, WrapPolicy::kSizeBased, WrapPolicy::kNone})
      for (int64_t least : {1, 500, 700, 100000}) {
        const ModelSpec spec = small_model(4, tied);
        std::vector<std::string> before, after;
        for (const UnitSpec& unit : spec.units)
          for (const ParamSpec& param : unit.params) before.push_back(param.name);
        size_t units = 0;
        for (const WrappedUnit& run : wrap(spec, policy, least)) {
          EXPECT_EQ(static_cast<size_t>(run.first_unit), units);
          for (size_t i = 0; i < run.first_params.size(); ++i)
            EXPECT_EQ(run.spec.params[static_cast<size_t>(run.first_params[i])].name,
                      spec.units[units + i].params[0].name);
          units += run.first_params.size();
          for (const ParamSpec& param : run.spec.params) after.push_back(param.name);
        }
        EXPECT_EQ(units, spec.units.size());
        EXPECT_EQ(after, before) << policy << " " << least;
      }
}

TEST(Wrap, SizesDecide) {
  const ModelSpec spec = small_model(4, false);
  EXPECT_EQ(wrap(spec, WrapPolicy::kModuleWrap, 1).size(), 6u);
  EXPECT_EQ(wrap(spec, WrapPolicy::kSizeBased, 1).size(), 6u);
  EXPECT_EQ(wrap(spec, WrapPolicy::kNone, 1).size(), 1u);
  int64_t block = 0;
  for (const ParamSpec& param : spec.units[1].params) block += param.elements();
  const auto pairs = wrap(spec, WrapPolicy::kSizeBased, block + 1);
  EXPECT_EQ(pairs.size(), 3u);
  for (size_t i = 0; i + 1 < pairs.size(); ++i) {
    int64_t size = 0;
    for (const ParamSpec& param : pairs[i].spec.params) size += param.elements();
    EXPECT_GT(size, block);
  }
}

TEST(Wrap, ATiedEmbeddingStaysAlone) {
  const auto runs = wrap(small_model(4, true), WrapPolicy::kSizeBased, 1 << 20);
  EXPECT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].first_params.size(), 1u);
  EXPECT_EQ(wrap(small_model(4, true), WrapPolicy::kNone, 1).size(), 1u);
}

TEST(Wrap, NamesSayWhatIsInside) {
  const std::vector<std::string> all = names(wrap(small_model(4, false), WrapPolicy::kNone, 1));
  EXPECT_THAT(all, ElementsAre(small_model(4, false).units.front().name + ".." +
                               small_model(4, false).units.back().name));
}

}  // namespace
}  // namespace lockstep::layout
