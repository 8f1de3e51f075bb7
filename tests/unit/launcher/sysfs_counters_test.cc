#include "launcher/health/sysfs_counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "tests/support/temp_dir.h"

namespace lockstep::launcher::health {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

class SysfsCounters : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& words) {
    std::filesystem::create_directories((sys() / file).parent_path());
    std::ofstream(sys() / file) << words;
  }
  std::filesystem::path sys() const { return folder_.path() / "sys"; }
  std::map<std::string, int64_t> read() const {
    std::map<std::string, int64_t> values;
    for (const Counter& counter : read_sysfs(sys())) values[counter.what] = counter.value;
    return values;
  }

  test_support::TempDir folder_;
};

TEST_F(SysfsCounters, AMachineWithoutAnyHasNone) { EXPECT_THAT(read(), IsEmpty()); }

TEST_F(SysfsCounters, OnlyUncorrectedMemoryErrorsMeanThatHardwareHasFailed) {
  write("devices/system/edac/mc/mc0/ue_count", "1\n");
  write("devices/system/edac/mc/mc0/ce_count", "20\n");
  write("devices/system/edac/mc/mc1/ue_count", "3");
  write("devices/system/edac/mc/power/ue_count", "99\n");
  write("class/infiniband/mlx5_0/ports/1/counters/symbol_error", "5\n");
  std::map<std::string, int64_t> failing;
  for (const Counter& counter : read_sysfs(sys()))
    if (counter.meaning == Meaning::kFailed) failing[counter.what] = counter.value;
  EXPECT_THAT(failing, ElementsAre(Pair("uncorrected memory errors of memory controller mc0", 1),
                                   Pair("uncorrected memory errors of memory controller mc1", 3)));
  EXPECT_EQ(read().at("corrected memory errors of memory controller mc0"), 20);
  EXPECT_EQ(read().at("symbol errors of mlx5_0 port 1"), 5);
}

TEST_F(SysfsCounters, NetworkCardsCountAndWhatHasNoDeviceDoesNot) {
  for (const char* card : {"eth0", "veth1"}) {
    write(std::string("class/net/") + card + "/carrier_changes", "2\n");
    write(std::string("class/net/") + card + "/statistics/rx_crc_errors", "7\n");
  }
  std::filesystem::create_directories(sys() / "devices/card");
  std::filesystem::create_symlink(sys() / "devices/card", sys() / "class/net/eth0/device");
  EXPECT_THAT(read(), UnorderedElementsAre(Pair("times that the link went down or up of eth0", 2),
                                           Pair("checksum errors of eth0", 7)));
}

TEST_F(SysfsCounters, ProcessorsAreOneLine) {
  write("devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "1\n");
  write("devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "2\n");
  write("devices/system/cpu/cpufreq/thermal_throttle/core_throttle_count", "x\n");
  write("devices/system/cpu/cpu2/online", "1\n");
  EXPECT_THAT(read(), ElementsAre(Pair("times that heat slowed down a core", 3)));
  write("devices/system/cpu/cpu2/thermal_throttle/core_throttle_count", "9223372036854775807\n");
  EXPECT_THAT(read(), ElementsAre(Pair("times that heat slowed down a core", INT64_MAX)));
}

TEST_F(SysfsCounters, AFileThatHoldsNoNumberIsLeftOut) {
  const std::string file = "devices/system/edac/mc/mc0/ue_count";
  for (const char* words : {"", "\n", "many\n", "0x1\n", "1 2\n", "-1\n", "1.5\n", "\n1\n"}) {
    write(file, words);
    EXPECT_THAT(read(), IsEmpty()) << words;
  }
  write(file, std::string(5'000'000, '7'));
  EXPECT_THAT(read(), ElementsAre(Pair(testing::_, INT64_MAX))) << "a number without room";
  std::filesystem::remove(sys() / file);
  std::filesystem::create_directories(sys() / file);
  EXPECT_THAT(read(), IsEmpty()) << "a folder";
  std::filesystem::remove(sys() / file);
  std::filesystem::create_symlink("ue_count", sys() / file);
  EXPECT_THAT(read(), IsEmpty()) << "a link to itself";
}

// A card that is pulled takes its files with it.
TEST_F(SysfsCounters, AFileThatGoesAndComesBackHasNotGrown) {
  write("devices/system/edac/mc/mc0/ue_count", "4\n");
  HealthRules rules;
  rules.note(read_sysfs(sys()), 0);
  std::filesystem::remove_all(sys() / "devices");
  EXPECT_EQ(rules.note(read_sysfs(sys()), 1), Health{});
  write("devices/system/edac/mc/mc0/ue_count", "4\n");
  EXPECT_EQ(rules.note(read_sysfs(sys()), 2), Health{});
  write("devices/system/edac/mc/mc0/ue_count", "5\n");
  EXPECT_NE(rules.note(read_sysfs(sys()), 3).failed, "");
}

}  // namespace
}  // namespace lockstep::launcher::health
