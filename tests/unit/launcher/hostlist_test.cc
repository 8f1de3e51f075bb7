#include "launcher/host/hostlist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launcher {
namespace {

using testing::ElementsAre;

std::vector<std::string> hosts(std::string_view list) {
  const auto expanded = expand_hostlist(list);
  EXPECT_TRUE(expanded) << list;
  return expanded ? expanded.value() : std::vector<std::string>{};
}

TEST(Hostlist, ExpandsRangesListsAndPlainNames) {
  EXPECT_THAT(hosts("gpu05"), ElementsAre("gpu05"));
  EXPECT_THAT(hosts("node[1-3,7],gpu05"), ElementsAre("node1", "node2", "node3", "node7", "gpu05"));
  EXPECT_THAT(hosts("a,b[2],c"), ElementsAre("a", "b2", "c"));
}

TEST(Hostlist, KeepsTheWidthOfTheFirstNumber) {
  EXPECT_THAT(hosts("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(hosts("n[001,2]"), ElementsAre("n001", "n2"));
  EXPECT_THAT(hosts("n[9-10]"), ElementsAre("n9", "n10"));
}

TEST(Hostlist, MultipliesSeveralBracketsAndKeepsSuffixes) {
  EXPECT_THAT(hosts("r[1-2]n[3-4]"), ElementsAre("r1n3", "r1n4", "r2n3", "r2n4"));
  EXPECT_THAT(hosts("r[1,2]-ib.lab"), ElementsAre("r1-ib.lab", "r2-ib.lab"));
}

TEST(Hostlist, RefusesWhatIsNotAList) {
  for (const char* wrong :
       {"", "a,", ",a", "a[", "a]", "a[]", "a[1", "a[2-1]", "a[x]", "a[1-]", "a[-1]", "a[1[2]]",
        "a[1-2-3]", "a[0-99999999999]", "a[0-999999]", "a[0-999]b[0-999]"})
    EXPECT_FALSE(expand_hostlist(wrong)) << wrong;
}

TEST(TasksPerNode, ExpandsCounts) {
  EXPECT_THAT(expand_tasks_per_node("2(x3),1").value(), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(expand_tasks_per_node("8").value(), ElementsAre(8));
  for (const char* wrong : {"", "x", "2(x", "2(x)", "2(x3", "2(3)", "-1", "1,", "1(x999999)"})
    EXPECT_FALSE(expand_tasks_per_node(wrong)) << wrong;
}

}  // namespace
}  // namespace lockstep::launcher
