// The CPUs that `lockstep submit` asks for, from what sinfo says.
#include "launcher/slurm/node_cpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launcher::slurm {
namespace {

constexpr const char* kLines =
    "debug|16|1:8:2|(null)\n"
    "normal*|128+|2:32:2|gpu:a100:4(S:0-1)\n"
    "normal*|288|4:72:1|gpu:gh200:4(S:0-3),shard:8\n"
    "normal*|8|1:8:1|(null)\n"
    "big|64|2:32:1|gpu:8\n";

int64_t cpus(const NodeShare& share) { return cpus_of_share(kLines, share).value(); }

TEST(NodeCpus, AWholeNodeIsTheLeastOfThePartition) {
  EXPECT_EQ(cpus({}), 8);
  EXPECT_EQ(cpus({.partitions = "debug"}), 16);
  EXPECT_EQ(cpus({.partitions = "big,debug"}), 16);
}

TEST(NodeCpus, GpusBringTheirPartOfANodeThatHasThem) {
  EXPECT_EQ(cpus({.partitions = "", .gpus = 4}), 128);
  EXPECT_EQ(cpus({.partitions = "", .gpus = 1}), 32);
  EXPECT_EQ(cpus({.partitions = "big", .gpus = 2}), 16);
  EXPECT_EQ(cpus({.partitions = "normal,big", .gpus = 8}), 64);
}

TEST(NodeCpus, WithoutHardwareThreadsACoreIsOne) {
  EXPECT_EQ(cpus({.partitions = "", .gpus = 4, .one_a_core = true}), 64);
  EXPECT_EQ(cpus({.partitions = "debug", .one_a_core = true}), 8);
}

TEST(NodeCpus, WhatNobodyKnowsIsAnError) {
  EXPECT_THAT(cpus_of_share(kLines, {.partitions = "norm"}).error().message,
              testing::HasSubstr("no node of norm whose"));
  EXPECT_THAT(cpus_of_share(kLines, {.partitions = "big", .gpus = 9}).error().message,
              testing::HasSubstr("no node of big with 9 GPUs"));
  for (const char* lines : {"", "\n", "no such thing", "normal*|many|1:1:1|(null)"})
    EXPECT_EQ(cpus_of_share(lines, {}).error().code, Code::kConfig) << lines;
}

TEST(NodeCpus, CountsOfGpus) {
  for (const auto& [words, gpus] : {std::pair("4", 4), {"a100:4", 4}, {"a100", 1}, {"", 0}})
    EXPECT_EQ(gpus_of_count(words), gpus) << words;
  for (const auto& [words, gpus] : {std::pair("gpu:2", 2),
                                    {"gpu", 1},
                                    {"gpu:a100:3(S:0-1),gpu:b:1", 4},
                                    {"shard:8,gpus:2", 0},
                                    {"(null)", 0}})
    EXPECT_EQ(gpus_of_gres(words), gpus) << words;
}

}  // namespace
}  // namespace lockstep::launcher::slurm
