#include <gtest/gtest.h>

#include "launcher/net/store_server.h"

namespace lockstep::launcher::net {
namespace {

const StoreClient kAnn{1, 10}, kBob{1, 11}, kCid{2, 10};

class NetStore : public testing::Test {
 protected:
  NetStore() { server_.open("g1"); }

  StoreReplies ask(StoreClient client, StoreRequest request) {
    if (request.space.empty()) request.space = "g1";
    return server_.on_request(client, encode(request));
  }
  // The one answer that comes at once.
  StoreAnswer answer(StoreRequest request) {
    const StoreReplies replies = ask(kAnn, std::move(request));
    EXPECT_GE(replies.size(), 1u);
    if (replies.empty()) return {};
    EXPECT_EQ(replies[0].client, kAnn);
    return decode_store_answer(replies[0].bytes).value();
  }
  StoreAnswer set(const std::string& key, const std::string& value) {
    return answer({StoreOperation::kSet, 0, "", {key}, {value}});
  }
  static std::string refusal_in(const StoreReplies& replies, size_t i) {
    const StoreAnswer given = decode_store_answer(replies.at(i).bytes).value();
    return given.status == StoreStatus::kRefused ? given.text : "(not refused)";
  }

  StoreServer server_;
};

TEST_F(NetStore, EveryOperation) {
  EXPECT_EQ(answer({StoreOperation::kCheck, 0, "", {"a"}, {}}).number, 0);
  EXPECT_EQ(set("a", "1").status, StoreStatus::kOk);
  EXPECT_EQ(answer({StoreOperation::kGet, 0, "", {"a"}, {}}).text, "1");
  EXPECT_EQ(answer({StoreOperation::kCheck, 0, "", {"a"}, {}}).number, 1);
  EXPECT_EQ(answer({StoreOperation::kCheck, 0, "", {"a", "b"}, {}}).number, 0);
  EXPECT_EQ(answer({StoreOperation::kAdd, 41, "", {"n"}, {}}).number, 41);
  EXPECT_EQ(answer({StoreOperation::kAdd, -40, "", {"n"}, {}}).number, 1);
  EXPECT_EQ(answer({StoreOperation::kGet, 0, "", {"n"}, {}}).text, "1");
  EXPECT_EQ(answer({StoreOperation::kCount, 0, "", {}, {}}).number, 2);
  EXPECT_EQ(answer({StoreOperation::kDelete, 0, "", {"n"}, {}}).number, 1);
  EXPECT_EQ(answer({StoreOperation::kDelete, 0, "", {"n"}, {}}).number, 0);
  EXPECT_EQ(answer({StoreOperation::kWait, 0, "", {"a"}, {}}).status, StoreStatus::kOk);
  EXPECT_EQ(server_.key_count(), 1u);
}

TEST_F(NetStore, CompareSetAsTcpStoreDoesIt) {
  const auto compare_set = [&](std::string expected, std::string desired) {
    return answer({StoreOperation::kCompareSet, 0, "", {"k"}, {expected, desired}}).text;
  };
  EXPECT_EQ(compare_set("x", "1"), "x");  // not there, and not expected to be missing
  EXPECT_EQ(compare_set("", "1"), "1");
  EXPECT_EQ(compare_set("", "2"), "1");
  EXPECT_EQ(compare_set("1", "2"), "2");
  EXPECT_EQ(answer({StoreOperation::kGet, 0, "", {"k"}, {}}).text, "2");
}

TEST_F(NetStore, WhoWaitsIsAnsweredWhenTheLastKeyIsThere) {
  EXPECT_TRUE(ask(kBob, {StoreOperation::kWait, 0, "", {"a", "b"}, {}}).empty());
  EXPECT_TRUE(ask(kCid, {StoreOperation::kGet, 0, "", {"a"}, {}}).empty());
  EXPECT_EQ(server_.parked_count(), 2u);
  const StoreReplies first = ask(kAnn, {StoreOperation::kSet, 0, "", {"a"}, {"1"}});
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[1].client, kCid);
  EXPECT_EQ(decode_store_answer(first[1].bytes)->text, "1");
  const StoreReplies second = ask(kAnn, {StoreOperation::kSet, 0, "", {"b"}, {"2"}});
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[1].client, kBob);
  EXPECT_EQ(server_.parked_count(), 0u);
}

TEST_F(NetStore, AnOlderGenerationCanTouchNothing) {
  set("a", "1");
  EXPECT_TRUE(ask(kBob, {StoreOperation::kGet, 0, "", {"later"}, {}}).empty());
  server_.open("g2");
  const StoreReplies told = server_.forget("g1", "generation 2 has begun");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].client, kBob);
  EXPECT_EQ(refusal_in(told, 0), "generation 2 has begun");
  EXPECT_EQ(server_.key_count(), 0u);
  EXPECT_EQ(refusal_in(ask(kAnn, {StoreOperation::kSet, 0, "", {"a"}, {"zombie"}}), 0),
            "generation g1 is over or has not begun");
  EXPECT_EQ(answer({StoreOperation::kCheck, 0, "g2", {"a"}, {}}).number, 0);
  EXPECT_TRUE(server_.forget("g1", "").empty());
}

TEST_F(NetStore, WhoGoesIsForgotten) {
  ask(kAnn, {StoreOperation::kGet, 0, "", {"x"}, {}});
  ask(kBob, {StoreOperation::kGet, 0, "", {"x"}, {}});
  ask(kCid, {StoreOperation::kGet, 0, "", {"x"}, {}});
  server_.on_client_gone(kAnn);
  server_.on_client_gone(kAnn);
  EXPECT_EQ(server_.parked_count(), 2u);
  server_.on_node_gone(1);
  EXPECT_EQ(server_.parked_count(), 1u);
  const StoreReplies replies = ask(kAnn, {StoreOperation::kSet, 0, "", {"x"}, {"1"}});
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[1].client, kCid);
}

TEST_F(NetStore, LimitsAreRefusals) {
  StoreServer small({.max_key_bytes = 8,
                     .max_value_bytes = 8,
                     .max_request_keys = 2,
                     .max_keys = 2,
                     .max_total_bytes = 20,
                     .max_parked = 1});
  small.open("g");
  const auto refused = [&](StoreRequest request) {
    request.space = "g";
    return refusal_in(small.on_request(kAnn, encode(request)), 0);
  };
  const auto put = [](std::string key, std::string value) {
    return StoreRequest{StoreOperation::kSet, 0, "", {key}, {value}};
  };
  EXPECT_EQ(refused(put("123456789", "")), "the key has 9 bytes, and the limit is 8");
  EXPECT_EQ(refused(put("k", "123456789")), "the value has 9 bytes, and the limit is 8");
  EXPECT_EQ(refused({StoreOperation::kCheck, 0, "", {"1", "2", "3"}, {}}),
            "the request has 3 keys, and the limit is 2");
  EXPECT_EQ(refused(put("a", "12345678")), "(not refused)");
  EXPECT_EQ(refused(put("b", "12345678")), "(not refused)");
  EXPECT_EQ(refused(put("bb", "1")), "the store is full: 2 keys, 18 B");
  EXPECT_EQ(refused(put("a", "1")), "(not refused)");
  EXPECT_EQ(refused({StoreOperation::kAdd, 1, "", {"b"}, {}}), "(not refused)");
  EXPECT_EQ(refused(put("a", "word")), "(not refused)");
  EXPECT_EQ(refused({StoreOperation::kAdd, 1, "", {"a"}, {}}),
            "cannot add to \"a\": it does not hold a number");
  StoreRequest wait{StoreOperation::kGet, 0, "g", {"none"}, {}};
  EXPECT_TRUE(small.on_request(kBob, encode(wait)).empty());
  EXPECT_EQ(refused(wait), "too many clients wait for a key");
  EXPECT_EQ(refusal_in(small.on_request(kBob, encode(wait)), 0),
            "the client sent a request while another one waits on its connection");
  EXPECT_NE(refusal_in(small.on_request(kAnn, "garbage"), 0), "(not refused)");
}

TEST_F(NetStore, SumsDoNotOverflow) {
  EXPECT_EQ(answer({StoreOperation::kAdd, INT64_MAX, "", {"n"}, {}}).number, INT64_MAX);
  EXPECT_EQ(answer({StoreOperation::kAdd, 1, "", {"n"}, {}}).status, StoreStatus::kRefused);
}

TEST(NetStoreRelay, TellsThoseThatWaitWhenTheCoordinatorIsLost) {
  StoreRelay relay;
  relay.on_request(7);
  relay.on_request(8);
  relay.on_request(9);
  relay.on_reply(8);
  relay.on_gone(9);
  const StoreReplies told = relay.refuse_all("the coordinator is lost");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].client.peer, 7u);
  EXPECT_EQ(decode_store_answer(told[0].bytes)->text, "the coordinator is lost");
  EXPECT_TRUE(relay.refuse_all("again").empty());
}

}  // namespace
}  // namespace lockstep::launcher::net
