// Clusters that people have: what each rank says of itself, and what all of them make of it.
#include "core/comm/transport.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "core/comm/nodes.h"

namespace lockstep::core {
namespace {

using Facts = std::vector<RankFacts>;

RankFacts on_cpu(const std::string& host, int ranks_of_node) {
  RankFacts f;
  f.host = host;
  f.ranks_of_node = ranks_of_node;
  return f;
}

// On device `index` of `host`; the rank sees `devices` of them.
RankFacts on_gpu(const std::string& host, int ranks_of_node, int index, int devices) {
  RankFacts f = on_cpu(host, ranks_of_node);
  f.build = f.kind = "cuda";
  f.devices = devices;
  f.uuid = text("GPU-", host, "-", index);
  f.capability = "9.0";
  f.collectives = "2.28.9";
  return f;
}

// A CUDA build that sees no device.
RankFacts blind(const std::string& host, int ranks_of_node) {
  RankFacts f = on_cpu(host, ranks_of_node);
  f.build = "cuda";
  return f;
}

Facts cpus(int nodes, int ranks) {
  Facts facts;
  for (int n = 0; n < nodes; ++n)
    for (int r = 0; r < ranks; ++r) facts.push_back(on_cpu(text("n", n), ranks));
  return facts;
}

// Each node has `devices` devices and sees them all; rank r of it takes device r % devices.
Facts gpus(int nodes, int ranks, int devices) {
  Facts facts;
  for (int n = 0; n < nodes; ++n)
    for (int r = 0; r < ranks; ++r)
      facts.push_back(on_gpu(text("n", n), ranks, r % devices, devices));
  return facts;
}

Facts joined(Facts all, const Facts& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Transport chosen(const Facts& facts) {
  auto transport = choose_transport(facts);
  EXPECT_TRUE(transport.ok()) << transport.error().message;
  return transport.ok() ? *transport : Transport::kGloo;
}

// The error's message.
std::string refused(const Facts& facts) {
  auto transport = choose_transport(facts);
  EXPECT_FALSE(transport.ok()) << transport_name(*transport);
  if (transport.ok()) return "";
  EXPECT_EQ(transport.error().code, Code::kConfig);
  return transport.error().message;
}

void expect_words(const std::string& said, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(said.find(word), std::string::npos) << "no \"" << word << "\" in: " << said;
}

TEST(Transport, OfCpus) {
  EXPECT_EQ(chosen(cpus(1, 4)), Transport::kMemory);
  EXPECT_EQ(chosen(cpus(4, 2)), Transport::kGloo);
  EXPECT_EQ(chosen(cpus(4, 1)), Transport::kGloo);
  Facts unknown = cpus(1, 3);
  for (RankFacts& f : unknown) f.ranks_of_node = 0;
  EXPECT_EQ(chosen(unknown), Transport::kMemory);
}

TEST(Transport, OfGpusWithOneRankEach) {
  EXPECT_EQ(chosen(gpus(1, 8, 8)), Transport::kNccl);
  EXPECT_EQ(chosen(gpus(4, 8, 8)), Transport::kNccl);
  EXPECT_EQ(chosen(gpus(1, 2, 8)), Transport::kNccl) << "fewer ranks than devices";
  EXPECT_EQ(chosen(joined(gpus(1, 8, 8), {on_gpu("n1", 4, 0, 4), on_gpu("n1", 4, 1, 4)})),
            Transport::kNccl)
      << "nodes of other sizes";
}

// srun --gpus-per-task=1: every rank sees one device, and calls it 0.
TEST(Transport, OfRanksThatSeeOneDeviceEach) {
  Facts facts;
  for (int r = 0; r < 16; ++r) facts.push_back(on_gpu(text("n", r / 8), 8, r % 8, 1));
  EXPECT_EQ(chosen(facts), Transport::kNccl);
}

TEST(Transport, OfRanksThatShareDevicesEvenly) {
  EXPECT_EQ(chosen(gpus(1, 2, 1)), Transport::kStaged);
  EXPECT_EQ(chosen(gpus(2, 8, 4)), Transport::kStaged);
  Facts bound = gpus(1, 8, 1);  // CUDA_VISIBLE_DEVICES=0 for all
  EXPECT_EQ(chosen(bound), Transport::kStaged);
  expect_words(transport_text(Transport::kStaged, bound), {"8 ranks", "8 of them share a device"});
}

TEST(Transport, ANodeWithADeadDriverIsNamed) {
  Facts facts = gpus(1, 8, 8);
  for (int r = 0; r < 8; ++r) facts.push_back(blind("n1", 8));
  expect_words(refused(facts),
               {"rank 8 on n1 computes on cpu (it sees 0 cuda devices)",
                "rank 0 on n0 computes on cuda (it sees 8 cuda devices), like 8 of 16 ranks",
                "Also different: rank 9, 10, 11, 12, 13, 14, 15. ", "nvidia-smi"});
}

// Most ranks are right, wherever rank 0 is.
TEST(Transport, RankZeroCanBeTheOddOne) {
  Facts facts = gpus(3, 4, 4);
  for (size_t r = 0; r < 4; ++r) facts[r] = blind("n0", 4);
  expect_words(refused(facts), {"rank 0 on n0 computes on cpu", "rank 4 on n1 computes on cuda",
                                "like 8 of 12 ranks", ": rank 1, 2, 3."});
}

TEST(Transport, SevenOfEightDevicesAreNamed) {
  const Facts facts =
      joined(gpus(1, 8, 8), {on_gpu("n1", 8, 0, 7), on_gpu("n1", 8, 1, 7), on_gpu("n1", 8, 2, 7),
                             on_gpu("n1", 8, 3, 7), on_gpu("n1", 8, 4, 7), on_gpu("n1", 8, 5, 7),
                             on_gpu("n1", 8, 6, 7), on_gpu("n1", 8, 0, 7)});
  expect_words(refused(facts),
               {"rank 15 on n1 (it sees 7 cuda devices) computes on device GPU-n1-0",
                "as rank 8 on n1 does: 2 ranks",
                "and 1 rank on the device of rank 0 on n0 (it "
                "sees 8 cuda devices)"});
  expect_words(refused(gpus(1, 8, 7)), {"rank 7 on n0 (it sees 7 cuda devices)",
                                        "as rank 0 on n0 does", "of rank 1 on n0"});
}

TEST(Transport, ANodeWithHalfTheDevicesOfTheOthersIsNamed) {
  expect_words(refused(joined(gpus(1, 4, 4), {on_gpu("n1", 4, 0, 2), on_gpu("n1", 4, 1, 2),
                                              on_gpu("n1", 4, 0, 2), on_gpu("n1", 4, 1, 2)})),
               {"rank 6 on n1 (it sees 2 cuda devices)", "as rank 4 on n1 does"});
}

// Two tasks of a node were bound to the same device by mistake.
TEST(Transport, ATaskOnAnothersDeviceIsNamed) {
  Facts facts;
  for (int r = 0; r < 4; ++r) facts.push_back(on_gpu("n0", 4, r == 3 ? 2 : r, 1));
  expect_words(refused(facts), {"rank 3 on n0", "GPU-n0-2", "as rank 2 on n0 does",
                                "of rank 0 on n0 (it sees 1 cuda device)"});
}

TEST(Transport, ABuildForTheCpuAmongOthersIsNamed) {
  Facts facts = gpus(3, 1, 1);
  facts[2] = on_cpu("n2", 1);
  expect_words(refused(facts), {"rank 2 on n2 computes on cpu (its program is built for CPUs only)",
                                "the same build"});
}

// CUDA_VISIBLE_DEVICES="" on all, and a node whose build has no CUDA: all compute on CPUs.
TEST(Transport, BuildsMayDifferWhereAllComputeOnCpus) {
  EXPECT_EQ(chosen({blind("n0", 2), blind("n0", 2)}), Transport::kMemory);
  EXPECT_EQ(chosen({blind("n0", 1), on_cpu("n1", 1)}), Transport::kGloo);
}

TEST(Transport, AnotherModelOrLibraryIsNamed) {
  Facts facts = gpus(2, 2, 2);
  facts[2].capability = facts[3].capability = "8.0";
  expect_words(refused(facts), {"rank 2 on n1 has compute capability 8.0",
                                "rank 0 on n0 has compute capability 9.0", "like 2 of 4 ranks"});
  facts = gpus(2, 2, 2);
  facts[3].collectives = "2.27.5";
  expect_words(refused(facts), {"rank 3 on n1 has NCCL 2.27.5", "rank 0 on n0 has NCCL 2.28.9",
                                "like 3 of 4 ranks"});
}

TEST(Transport, ManyOddRanksAreCounted) {
  Facts facts = gpus(4, 8, 8);
  for (size_t r = 12; r < 24; ++r) facts[r] = blind("n1", 8);
  expect_words(refused(facts), {"rank 12 on ", ": rank 13, 14, 15, 16, 17, 18, 19 and 4 more"});
}

// LOCAL_WORLD_SIZE is not set, and each rank takes its own place for the last one.
TEST(Transport, TheMostThatARankHeardOfAreANodesRanks) {
  Facts facts = {on_cpu("n0", 1), on_cpu("n0", 2), on_cpu("n0", 3)};
  EXPECT_EQ(ranks_of_node(facts), 3);
  EXPECT_EQ(chosen(facts), Transport::kMemory);
  facts[0].ranks_of_node = 0;
  EXPECT_EQ(ranks_of_node(facts), 3);
  EXPECT_EQ(ranks_of_node(cpus(4, 2)), 2);
}

TEST(RankFacts, ComeBackAsTheyWere) {
  const RankFacts facts = on_gpu("node \"7\"", 8, 3, 8);
  auto back = parse_rank_facts(encode(facts));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, facts);
}

TEST(RankFacts, ALongOrStrangeNameFits) {
  RankFacts facts = on_cpu(std::string(300, '\x01') + "\xff", 1);
  auto back = parse_rank_facts(encode(facts));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->host, std::string(64, '\x01'));
}

TEST(RankFacts, WhatIsNoneIsRefused) {
  for (const char* words : {"", "{", "[]", "{}", R"({"host": 3})"}) {
    const auto parsed = parse_rank_facts(words);
    ASSERT_FALSE(parsed.ok()) << words;
    EXPECT_EQ(parsed.error().code, Code::kPeerLost);
  }
}

}  // namespace
}  // namespace lockstep::core
