#include "core/train/store_ballot.h"

#include <gtest/gtest.h>

#include <map>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep::core {
namespace {

using std::chrono::milliseconds;

class MapStore final : public SharedStore {
 public:
  Result<void> set(const std::string& key, const std::string& value) override {
    keys[key] = value;
    return {};
  }
  Result<std::string> get(const std::string& key, double timeout_s) override {
    waited_s = timeout_s;
    const auto at = keys.find(key);
    if (at == keys.end()) return Error{Code::kTimeout, key};
    return at->second;
  }
  Result<void> remove(const std::string& key) override {
    keys.erase(key);
    return {};
  }
  std::map<std::string, std::string> keys;
  double waited_s = 0;
};

TEST(StoreBallot, WordsAreInTheStoreUntilTheyAreForgotten) {
  MapStore store;
  StoreBallot ballot(store);
  ASSERT_TRUE(ballot.tell("save/a/1", std::string("v\0w", 3)).ok());
  EXPECT_EQ(ballot.hear("save/a/1", milliseconds(1500)).value(), std::string("v\0w", 3));
  EXPECT_EQ(store.waited_s, 1.5);
  ballot.forget("save/a/1");
  EXPECT_TRUE(store.keys.empty());
  EXPECT_EQ(ballot.hear("save/a/1", milliseconds(0)).error().code, Code::kTimeout);
}

// A store in which nothing ever is, and which counts who asks.
class EmptyStore final : public c10d::Store {
 public:
  using Store::compareSet;
  using Store::set;
  using Bytes = std::vector<uint8_t>;
  c10::intrusive_ptr<Store> clone() override { return nullptr; }
  void set(const std::string&, const Bytes&) override {}
  Bytes compareSet(const std::string&, const Bytes&, const Bytes&) override { return {}; }
  Bytes get(const std::string&) override { return {}; }
  int64_t add(const std::string&, int64_t) override { return 0; }
  bool deleteKey(const std::string&) override { return false; }
  bool check(const std::vector<std::string>&) override {
    ++asked;
    return false;
  }
  int64_t getNumKeys() override { return 0; }
  void wait(const std::vector<std::string>&) override {}
  void wait(const std::vector<std::string>&, const milliseconds&) override {}
  int asked = 0;
};

// 32 ms of questions every 2 ms, then one for each sixteenth more: 16 + log(3.2 / 0.032) / log(17 /
// 16), and those of pauses that are cut at 0.1 s. A slow machine asks less.
TEST(SharedStore, WhoWaitsLongAsksSeldom) {
  const auto counted = c10::make_intrusive<EmptyStore>();
  const auto store = share_store(counted);
  const auto word = store->get("never", 3);
  ASSERT_FALSE(word.ok());
  EXPECT_EQ(word.error().code, Code::kTimeout);
  EXPECT_GT(counted->asked, 1);
  EXPECT_LT(counted->asked, 120);
}

}  // namespace
}  // namespace lockstep::core
