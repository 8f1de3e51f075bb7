#include "core/train/store_ballot.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep::core {
namespace {

using std::chrono::milliseconds;

class MapStore final : public SharedStore {
 public:
  Result<void> set(const std::string& key, const std::string& value) override {
    keys[key] = value;
    return {};
  }
  Result<std::string> get(const std::string& key, double) override {
    const auto at = keys.find(key);
    if (at == keys.end()) return Error{Code::kTimeout, key};
    return at->second;
  }
  Result<void> remove(const std::string& key) override {
    keys.erase(key);
    return {};
  }
  std::map<std::string, std::string> keys;
};

TEST(StoreBallot, KeysOfEarlierAttemptsAreRemovedWhenAllHaveVotedOnALaterOne) {
  MapStore store;
  StoreBallot ballot(store);
  const auto vote = [&](const std::string& attempt, int voters) {
    for (int rank = 0; rank < voters; ++rank) ASSERT_TRUE(ballot.cast(attempt, rank, "v").ok());
    EXPECT_EQ(ballot.collect(attempt, 2, milliseconds(0)).ok(), voters == 2);
    ASSERT_TRUE(ballot.announce(attempt, "said").ok());
  };
  vote("a", 2);
  EXPECT_EQ(store.keys.size(), 3u);
  vote("b", 1);  // rank 1 is late: it may still ask what came of a
  EXPECT_EQ(ballot.await_outcome("a", milliseconds(0)).value(), "said");
  EXPECT_EQ(store.keys.size(), 5u);
  for (int i = 0; i < 100; ++i) {
    vote("c" + std::to_string(i), 2);
    EXPECT_EQ(store.keys.size(), 3u);
  }
  EXPECT_EQ(ballot.await_outcome("c99", milliseconds(0)).value(), "said");
}

}  // namespace
}  // namespace lockstep::core
