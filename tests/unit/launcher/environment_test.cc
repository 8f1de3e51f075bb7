#include "launcher/host/environment.h"

#include <gtest/gtest.h>

namespace lockstep::launcher {
namespace {

Environment slurm(int64_t rank) {
  return {{"SLURM_JOB_ID", "4711"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_NTASKS", "5"},
          {"SLURM_STEP_NUM_TASKS", "5"},
          {"SLURM_LOCALID", std::to_string(rank % 2)},
          {"SLURM_NODEID", std::to_string(rank / 2)},
          {"SLURM_STEP_NODELIST", "node[07-08],gpu1"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.9.9.9"}};
}

Environment torchrun() {
  return {{"RANK", "3"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "host1"},
          {"MASTER_PORT", "29501"}};
}

TEST(Environment, KnowsWhoStartedUs) {
  EXPECT_EQ(detect_launcher({}), Launcher::kAlone);
  EXPECT_EQ(detect_launcher(torchrun()), Launcher::kTorchrun);
  EXPECT_EQ(detect_launcher(slurm(0)), Launcher::kSlurm);
  Environment batch_script = slurm(0);
  batch_script.erase("SLURM_STEP_ID");
  batch_script.erase("SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(detect_launcher(batch_script), Launcher::kAlone);
  Environment one_task = slurm(0);
  one_task["SLURM_STEP_NUM_TASKS"] = "1";
  EXPECT_EQ(detect_launcher(one_task), Launcher::kAlone);
}

TEST(Environment, SlurmPlacesAllRanksAlike) {
  const auto first = place_from(slurm(0), 1);
  ASSERT_TRUE(first);
  EXPECT_EQ(first.value().master_addr, "node07");
  EXPECT_GE(first.value().master_port, 20000);
  EXPECT_LT(first.value().master_port, 32000);
  EXPECT_EQ(first.value().nonce.size(), 6u);
  for (int64_t rank = 0; rank < 5; ++rank) {
    const auto place = place_from(slurm(rank), 3);
    ASSERT_TRUE(place) << place.error().message;
    EXPECT_EQ(place.value().rank, rank);
    EXPECT_EQ(place.value().local_rank, rank % 2);
    EXPECT_EQ(place.value().world_size, 5);
    EXPECT_EQ(place.value().local_world_size, rank == 4 ? 1 : 2);
    EXPECT_EQ(place.value().store, first.value().store);
    EXPECT_EQ(place.value().nonce, first.value().nonce);
    EXPECT_EQ(place.value().threads, 3);
    EXPECT_TRUE(place.value().hosts_store);
  }
}

TEST(Environment, ARequeuedJobIsTheNextGeneration) {
  Environment again = slurm(1);
  again["SLURM_RESTART_COUNT"] = "2";
  const auto place = place_from(again, 1);
  ASSERT_TRUE(place);
  EXPECT_EQ(place.value().generation, 2);
  EXPECT_NE(place.value().nonce, place_from(slurm(1), 1).value().nonce);
}

TEST(Environment, OneNodeTalksOverLoopback) {
  Environment one = slurm(1);
  one["SLURM_STEP_NODELIST"] = "node07";
  one["SLURM_STEP_TASKS_PER_NODE"] = "5";
  EXPECT_EQ(place_from(one, 1).value().master_addr, "127.0.0.1");
}

TEST(Environment, TorchrunKeepsItsAddressAndItsStore) {
  auto place = place_from(torchrun(), 1);
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place.value().store, "tcp:host1:29501");
  EXPECT_TRUE(place.value().hosts_store);
  Environment elastic = torchrun();
  elastic["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  elastic["TORCHELASTIC_RESTART_COUNT"] = "1";
  place = place_from(elastic, 1);
  EXPECT_FALSE(place.value().hosts_store);
  EXPECT_EQ(place.value().generation, 1);
}

TEST(Environment, NamesTheVariableThatIsWrong) {
  Environment wrong = torchrun();
  wrong["WORLD_SIZE"] = "four";
  EXPECT_NE(place_from(wrong, 1).error().message.find("WORLD_SIZE"), std::string::npos);
  wrong = torchrun();
  wrong["RANK"] = "4";
  EXPECT_FALSE(place_from(wrong, 1));
  wrong = torchrun();
  wrong.erase("MASTER_ADDR");
  EXPECT_NE(place_from(wrong, 1).error().message.find("MASTER_ADDR"), std::string::npos);
  wrong = slurm(0);
  wrong["SLURM_STEP_NODELIST"] = "node[";
  EXPECT_NE(place_from(wrong, 1).error().message.find("SLURM_STEP_NODELIST"), std::string::npos);
  wrong = slurm(0);
  wrong["SLURM_NODEID"] = "9";
  EXPECT_FALSE(place_from(wrong, 1));
}

TEST(Environment, WorkerVariablesPinThreadsAndKeepTheRest) {
  WorkerPlace place;
  place.rank = 1;
  place.world_size = 3;
  place.local_world_size = 3;
  place.local_rank = 1;
  place.generation = 4;
  place.nonce = "7f2a91";
  place.store = "file:/x/store";
  place.progress_page = "/x/page";
  place.threads = 2;
  place.bind_address = "10.0.0.3";
  place.bind_interface = "ib0";
  const Environment out = worker_variables(
      {{"HOME", "/h"}, {"OMP_NUM_THREADS", "64"}, {"LOCKSTEP_SECRET", "s"}}, place);
  EXPECT_EQ(out.at("HOME"), "/h");
  EXPECT_EQ(out.at("RANK"), "1");
  EXPECT_EQ(out.at("WORLD_SIZE"), "3");
  EXPECT_EQ(out.at("LOCKSTEP_GENERATION"), "4");
  EXPECT_EQ(out.at("LOCKSTEP_NONCE"), "7f2a91");
  EXPECT_EQ(out.at("LOCKSTEP_STORE"), "file:/x/store");
  EXPECT_EQ(out.at("LOCKSTEP_PROGRESS_PAGE"), "/x/page");
  EXPECT_EQ(out.at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(out.at("MKL_NUM_THREADS"), "2");
  EXPECT_EQ(out.at("MKL_DYNAMIC"), "FALSE");
  EXPECT_EQ(out.at("GLIBC_TUNABLES"), "glibc.malloc.hugetlb=1");
  EXPECT_FALSE(out.contains("MASTER_ADDR"));
  EXPECT_EQ(out.at("LOCKSTEP_BIND_ADDRESS"), "10.0.0.3");
  EXPECT_EQ(out.at("NCCL_SOCKET_IFNAME"), "=ib0");
  EXPECT_FALSE(out.contains("LOCKSTEP_SECRET"));
  const Environment mine = worker_variables(
      {{"NCCL_SOCKET_IFNAME", "eth1"}, {"GLIBC_TUNABLES", "glibc.malloc.hugetlb=0"}}, place);
  EXPECT_EQ(mine.at("GLIBC_TUNABLES"), "glibc.malloc.hugetlb=0");
  EXPECT_EQ(mine.at("NCCL_SOCKET_IFNAME"), "eth1");
}

}  // namespace
}  // namespace lockstep::launcher
