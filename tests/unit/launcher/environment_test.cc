#include "launcher/host/environment.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

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
  const auto first = orders_from(slurm(0));
  ASSERT_TRUE(first);
  const std::string store = first.value().store;
  ASSERT_TRUE(store.starts_with("tcp:node07:")) << store;
  const int port = parse_number<int>(store.substr(store.rfind(':') + 1)).value_or(0);
  EXPECT_GE(port, 20000);
  EXPECT_LT(port, 32000);
  EXPECT_EQ(first.value().nonce.size(), 6u);
  for (int64_t rank = 0; rank < 5; ++rank) {
    const auto orders = orders_from(slurm(rank));
    ASSERT_TRUE(orders) << orders.error().message;
    EXPECT_EQ(orders.value().rank, rank);
    EXPECT_EQ(orders.value().local_rank, rank % 2);
    EXPECT_EQ(orders.value().world_size, 5);
    EXPECT_EQ(orders.value().local_world_size, rank == 4 ? 1 : 2);
    EXPECT_EQ(orders.value().store, first.value().store);
    EXPECT_EQ(orders.value().nonce, first.value().nonce);
    EXPECT_EQ(orders.value().store_server, StoreServer::kRank0);
  }
}

TEST(Environment, ARequeuedJobIsTheNextGeneration) {
  Environment again = slurm(1);
  again["SLURM_RESTART_COUNT"] = "2";
  const auto orders = orders_from(again);
  ASSERT_TRUE(orders);
  EXPECT_EQ(orders.value().generation, 2);
  EXPECT_NE(orders.value().nonce, orders_from(slurm(1)).value().nonce);
}

TEST(Environment, OneNodeTalksOverLoopback) {
  Environment one = slurm(1);
  one["SLURM_STEP_NODELIST"] = "node07";
  one["SLURM_STEP_TASKS_PER_NODE"] = "5";
  EXPECT_TRUE(orders_from(one).value().store.starts_with("tcp:127.0.0.1:"));
}

TEST(Environment, TorchrunKeepsItsAddressAndItsStore) {
  auto orders = orders_from(torchrun());
  ASSERT_TRUE(orders) << orders.error().message;
  EXPECT_EQ(orders.value().store, "tcp:host1:29501");
  EXPECT_EQ(orders.value().store_server, StoreServer::kRank0);
  Environment elastic = torchrun();
  elastic["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  elastic["TORCHELASTIC_RESTART_COUNT"] = "1";
  orders = orders_from(elastic);
  EXPECT_EQ(orders.value().store_server, StoreServer::kOther);
  EXPECT_EQ(orders.value().generation, 1);
}

TEST(Environment, NamesTheVariableThatIsWrong) {
  Environment wrong = torchrun();
  wrong["WORLD_SIZE"] = "";
  EXPECT_NE(orders_from(wrong).error().message.find("WORLD_SIZE"), std::string::npos);
  wrong = torchrun();
  wrong["RANK"] = "4";
  EXPECT_FALSE(orders_from(wrong));
  wrong = torchrun();
  wrong.erase("MASTER_ADDR");
  EXPECT_NE(orders_from(wrong).error().message.find("MASTER_ADDR"), std::string::npos);
  wrong = slurm(0);
  wrong["SLURM_STEP_NODELIST"] = "node[";
  EXPECT_NE(orders_from(wrong).error().message.find("SLURM_STEP_NODELIST"), std::string::npos);
  wrong = slurm(0);
  wrong["SLURM_NODEID"] = "9";
  EXPECT_FALSE(orders_from(wrong));
}

TEST(Environment, WorkerVariablesPinThreadsAndKeepTheRest) {
  WorkerOrders orders;
  orders.generation = 4;
  orders.progress_page = "/x/page";
  const Environment out = worker_variables({{"HOME", "/h"},
                                            {"OMP_NUM_THREADS", "64"},
                                            {"LOCKSTEP_SECRET", "s"},
                                            {"LOCKSTEP_GENERATION", "3"}},
                                           orders, 2);
  EXPECT_EQ(out.at("HOME"), "/h");
  const auto read = parse_worker_orders(out);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read.value(), orders);
  EXPECT_EQ(out.at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(out.at("MKL_NUM_THREADS"), "2");
  EXPECT_EQ(out.at("MKL_DYNAMIC"), "FALSE");
  EXPECT_EQ(out.at("GLIBC_TUNABLES"), "glibc.malloc.hugetlb=1");
  EXPECT_FALSE(out.contains("LOCKSTEP_SECRET"));
  const Environment mine =
      worker_variables({{"GLIBC_TUNABLES", "glibc.malloc.hugetlb=0"}}, orders, 2);
  EXPECT_EQ(mine.at("GLIBC_TUNABLES"), "glibc.malloc.hugetlb=0");
}

TEST(Environment, AsManyWorkersAsTheGpusThatTheyComputeOn) {
  const test_support::TempDir gpus;
  for (const char* name : {"0000:01:00.0", "0000:41:00.0", "0000:81:00.0"})
    std::filesystem::create_directory(gpus / name);
  const Environment both{{"LOCKSTEP_WORKER", "/w/gpu"}, {"LOCKSTEP_GPU_WORKER", "/w/gpu"}};
  EXPECT_EQ(default_worker_count(both, gpus.path(), false), 3);
  EXPECT_EQ(default_worker_count({}, gpus.path(), true), 3);
  EXPECT_EQ(default_worker_count(both, gpus / "none", true), 1);
  Environment some = both;
  some["CUDA_VISIBLE_DEVICES"] = "0,2";
  EXPECT_EQ(default_worker_count(some, gpus.path(), true), 2);
  some["CUDA_VISIBLE_DEVICES"] = "";
  EXPECT_EQ(default_worker_count(some, gpus.path(), true), 1);
  EXPECT_EQ(default_worker_count({}, gpus.path(), false), 1);
  Environment other = both;
  other["LOCKSTEP_WORKER"] = "/w/cpu";
  EXPECT_EQ(default_worker_count(other, gpus.path(), false), 1);
}

}  // namespace
}  // namespace lockstep::launcher
