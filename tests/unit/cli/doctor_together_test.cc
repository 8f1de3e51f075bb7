// `lockstep doctor`: what shows only when nodes are looked at side by side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/text.h"
#include "cli/doctor/doctor_verdicts.h"
#include "tests/unit/cli/healthy_node.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;

// Three alike, each of which reaches the others; the first is node 0.
std::vector<MetNode> three_nodes() {
  std::vector<MetNode> met;
  for (int64_t rank = 0; rank < 3; ++rank) {
    MetNode node{rank, healthy(), {}, {}};
    node.facts.node = text("gpu00", rank);
    for (int64_t to = 0; to < 3; ++to)
      if (to != rank) node.pairs.push_back({to, "", 1e-4, 2e9});
    if (rank > 0) node.skew = ClockSkew{0.01, 0.02};
    met.push_back(node);
  }
  return met;
}

TEST(DoctorTogether, NodesThatAreAlikeAreOk) {
  for (const Verdict& v : judge_together(three_nodes(), 3))
    EXPECT_EQ(v.level, Level::kOk) << v.what << ": " << v.found;
}

TEST(DoctorTogether, EachTroubleIsSaid) {
  struct Case {
    const char* what;
    Level level;
    const char* words;
    std::function<void(std::vector<MetNode>&)> make;
  };
  using Met = std::vector<MetNode>;
  const Case cases[] = {
      {"nodes", Level::kBad, "2 of 3 nodes came to the shared folder; missing: task 1",
       [](Met& met) { met.erase(met.begin() + 1); }},
      {"nodes", Level::kWarn, "2 of them are gpu000",
       [](Met& met) { met[2].facts.node = "gpu000"; }},
      {"clocks", Level::kWarn, "by at least 29.900 s, measured with an error of 0.100 s (gpu002)",
       [](Met& met) {
         met[2].skew = ClockSkew{-30, 0.1};
       }},
      {"clocks", Level::kWarn, "error of 12.000 s",
       [](Met& met) {
         met[1].skew = ClockSkew{3, 12};
       }},
      {"sameness", Level::kWarn, "LibTorch: 2.11.0 on gpu000, 2.10.0 on gpu001",
       [](Met& met) { met[1].facts.compute.torch = "2.10.0"; }},
      {"network", Level::kBad, "gpu001 chose its loopback",
       [](Met& met) { met[1].facts.network.address = "127.0.0.1"; }},
      {"network", Level::kWarn, "peers will use eth0 ib0, which is not the same",
       [](Met& met) { met[1].facts.network.interface = "ib0"; }},
      {"pairs", Level::kBad, "5 of 6 ways between nodes measured; 1 failed; gpu002 -> gpu000: no",
       [](Met& met) { met[2].pairs[0].error = "no route to host"; }},
      {"pairs", Level::kWarn, "slowest 100.0 MB/s (gpu001 -> gpu002), median 2.0 GB/s",
       [](Met& met) { met[1].pairs[1].bytes_per_s = 1e8; }},
      {"pairs", Level::kWarn, "0 of 6 ways",
       [](Met& met) {
         for (MetNode& node : met) node.pairs.clear();
       }},
      {"gemm", Level::kWarn, "slowest: gpu001 at 70 % of the median",
       [](Met& met) { met[1].facts.compute.fp32_tflops = 35; }},
      {"disk", Level::kBad, "slowest: gpu002 at 30 % of the median",
       [](Met& met) { met[2].facts.disk.write_s = 0.9; }},
  };
  for (const Case& c : cases) {
    Met met = three_nodes();
    c.make(met);
    for (const Verdict& v : judge_together(met, 3)) {
      if (v.what != std::string(c.what)) {
        EXPECT_EQ(v.level, Level::kOk) << v.what << ": " << v.found;
        continue;
      }
      EXPECT_EQ(v.level, c.level) << v.found;
      EXPECT_THAT(v.found, HasSubstr(c.words));
      EXPECT_NE(v.advice, "");
    }
  }
}

TEST(DoctorTogether, TheWorstPairsAreNamed) {
  std::vector<MetNode> met = three_nodes();
  met[0].pairs[1].round_trip_s = 0.0021;
  met[2].pairs[0].bytes_per_s = 1.9e9;
  for (const Verdict& v : judge_together(met, 3)) {
    EXPECT_EQ(v.level, Level::kOk) << v.what << ": " << v.found;
    if (v.what != "pairs") continue;
    EXPECT_EQ(v.found,
              "6 of 6 ways between nodes measured; slowest 1.9 GB/s (gpu002 -> gpu000), "
              "median 2.0 GB/s; longest round trip 2.100 ms (gpu000 -> gpu002)");
  }
}

}  // namespace
}  // namespace lockstep::cli
