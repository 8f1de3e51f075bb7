#include "worker_link/worker_orders.h"

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

// No field has its default.
WorkerOrders some_orders() {
  WorkerOrders orders;
  orders.rank = 5;
  orders.local_rank = 1;
  orders.world_size = 6;
  orders.local_world_size = 2;
  orders.generation = int64_t{1} << 40;
  orders.nonce = "7f2a91";
  orders.store = "agent:/x/store";
  orders.store_server = StoreServer::kOther;
  orders.bind_address = "10.0.0.3";
  orders.bind_interface = "ib0";
  orders.progress_page = "/x/a page=1";
  orders.serves = Serves::kLater;
  orders.keep_bytes = int64_t{768} << 20;
  orders.standard_output = "/x/out";
  orders.standard_error = "/x/err";
  return orders;
}

TEST(WorkerOrders, ComeBackFromVariables) {
  for (const WorkerOrders& orders : {some_orders(), WorkerOrders()}) {
    const auto read = parse_worker_orders(encode(orders));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read.value(), orders);
  }
  // A variable for each field.
  EXPECT_EQ(encode(some_orders()).size(), 15u);
}

TEST(WorkerOrders, ComeBackFromTheFileBesideThePage) {
  const test_support::TempDir folder;
  const auto page = folder / "page";
  EXPECT_EQ(read_orders(posix_file_system(), page).error().code, Code::kNotFound);
  ASSERT_TRUE(write_orders(posix_file_system(), page, WorkerOrders()));
  ASSERT_TRUE(write_orders(posix_file_system(), page, some_orders()));
  const auto read = read_orders(posix_file_system(), page);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read.value(), some_orders());
  ASSERT_TRUE(publish_file(posix_file_system(), page.string() + ".orders", "RANK"));
  EXPECT_EQ(read_orders(posix_file_system(), page).error().code, Code::kCorrupt);
}

TEST(WorkerOrders, AWorkerThatNobodyStartedIsAlone) {
  const auto read = parse_worker_orders({{"HOME", "/h"}, {"LOCKSTEP_STORE", ""}, {"RANK", ""}});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read.value(), WorkerOrders());
}

TEST(WorkerOrders, TorchrunsStoreCountsWhereNoOtherIsNamed) {
  Environment torchrun{{"RANK", "3"},
                       {"LOCAL_RANK", "1"},
                       {"WORLD_SIZE", "4"},
                       {"LOCAL_WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "host1"},
                       {"MASTER_PORT", "29501"}};
  WorkerOrders expected;
  expected.rank = 3;
  expected.local_rank = 1;
  expected.world_size = 4;
  expected.local_world_size = 2;
  expected.store = "tcp:host1:29501";
  EXPECT_EQ(parse_worker_orders(torchrun).value(), expected);
  torchrun["MASTER_PORT"] = "65536";
  EXPECT_NE(parse_worker_orders(torchrun).error().message.find("MASTER_PORT"), std::string::npos);
  torchrun["LOCKSTEP_STORE"] = expected.store = "file:/x";
  torchrun["MASTER_PORT"] = "tcp://10.0.0.1:80";  // of Kubernetes
  EXPECT_EQ(parse_worker_orders(torchrun).value(), expected);
}

TEST(WorkerOrders, NameTheVariableThatIsWrong) {
  const std::pair<const char*, const char*> wrong[] = {
      {"RANK", "four"},
      {"RANK", "-1"},
      {"RANK", "+1"},
      {"RANK", "1 "},
      {"RANK", "0x1"},
      {"RANK", "99999999999"},
      {"RANK", "6"},  // of 6
      {"LOCAL_RANK", "1.5"},
      {"WORLD_SIZE", "0"},
      {"LOCAL_WORLD_SIZE", "two"},
      {"LOCKSTEP_GENERATION", "9223372036854775808"},
      {"LOCKSTEP_STORE", "nfs:/x"},
      {"LOCKSTEP_STORE", "tcp:host"},
      {"LOCKSTEP_STORE", "tcp:host:"},
      {"LOCKSTEP_STORE", "tcp:host:http"},
      {"LOCKSTEP_STORE_SERVER", "rank1"},
      {"LOCKSTEP_TURNS", "sometimes"},
      {"LOCKSTEP_KEEP_BYTES", "768M"}};
  for (const auto& [name, value] : wrong) {
    Environment environment = encode(some_orders());
    environment[name] = value;
    const auto read = parse_worker_orders(environment);
    ASSERT_FALSE(read) << name << "=" << value;
    EXPECT_EQ(read.error().code, Code::kConfig);
    EXPECT_NE(read.error().message.find(name), std::string::npos) << read.error().message;
  }
}

}  // namespace
}  // namespace lockstep
