// The status page's server: who is shown a page, and what an outsider can do to it.
#include "launcher/net/status_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "tests/support/eventually.h"
#include "tests/support/http_get.h"
#include "tests/support/reserved_port.h"

namespace lockstep::launcher::net {
namespace {

using test_support::http_exchange;
using test_support::http_get;
using test_support::kPatienceMs;
using test_support::RawSocket;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int64_t kRequestMs = 600;

class StatusServerTest : public testing::Test {
 protected:
  StatusServer::Options options(const std::string& at) {
    return {.secret = secret_,
            .at = at,
            .pages = [](const PageRequest& request) -> StatusPage {
              const std::string_view path = request.path;
              if (path == "/request")
                return {.body = text("query ", request.query, ", token ", request.token),
                        .scripts = Scripts::kFiles};
              if (path == "/throws") throw std::runtime_error("a page that fails");
              if (path == "/large") return {.body = std::string(kLargeBytes, 'x')};
              if (path == "/huge") return {.body = std::string(kHugeBytes, 'x')};
              return {.status = path == "/" ? 200u : 404u, .body = text("page of ", path, "\n")};
            },
            .limits = {.max_connections = 4, .request_ms = kRequestMs},
            .warn =
                [this](const std::string& line) {
                  const std::lock_guard lock(mutex_);
                  warnings_.push_back(line);
                }};
  }
  void SetUp() override {
    auto opened = StatusServer::open(options("127.0.0.1:0"));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    server_ = std::move(opened).value();
  }
  // Also after whatever was done to it.
  void expect_serves() {
    EXPECT_THAT(http_get(port(), "/?token=" + token_), StartsWith("HTTP/1.1 200 "));
  }
  void expect_warned(const std::string& words) {
    const auto line = testing::Contains(AllOf(HasSubstr("127.0.0.1:"), HasSubstr(words)));
    test_support::eventually([&] {
      const std::lock_guard lock(mutex_);
      return testing::Matches(line)(warnings_);
    });
    const std::lock_guard lock(mutex_);
    EXPECT_THAT(warnings_, line);
    EXPECT_THAT(warnings_, testing::Each(Not(HasSubstr(token_))));
  }
  uint16_t port() const { return server_->listens_at().port; }

  static constexpr size_t kLargeBytes = size_t{1} << 20;
  static constexpr size_t kHugeBytes = size_t{64} << 20;  // more than the kernel keeps for a socket
  const Secret secret_ = Secret::generate();
  const std::string token_ = status_token(secret_);
  std::mutex mutex_;
  std::vector<std::string> warnings_;
  std::unique_ptr<StatusServer> server_;  // ends before what it calls
};

TEST_F(StatusServerTest, TheTokenFollowsFromTheSecretAndDoesNotTellIt) {
  EXPECT_EQ(token_.size(), 64u);
  EXPECT_EQ(status_token(secret_), token_);
  EXPECT_NE(status_token(Secret::generate()), token_);
  EXPECT_NE(secret_.hex(), token_);
  EXPECT_EQ(server_->url(), text("http://127.0.0.1:", port(), "/?token=", token_));
}

TEST_F(StatusServerTest, WhoHasTheTokenIsShownAPage) {
  const std::string bearer = "Authorization: Bearer " + token_ + "\r\n";
  for (const auto& answer :
       {http_get(port(), "/?token=" + token_), http_get(port(), "/?a=b&token=" + token_ + "&c"),
        http_get(port(), "/", bearer), http_get(port(), "/?token=wrong", bearer)}) {
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
    EXPECT_THAT(answer, testing::EndsWith("\r\n\r\npage of /\n"));
    EXPECT_THAT(answer, HasSubstr("Cache-Control: no-store"));
    EXPECT_THAT(answer, HasSubstr("Referrer-Policy: no-referrer"));
    EXPECT_THAT(answer, HasSubstr("Connection: close"));
  }
  EXPECT_THAT(http_get(port(), "/other", bearer), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(http_get(port(), "/throws", bearer),
              AllOf(StartsWith("HTTP/1.1 500 "), HasSubstr("a page that fails")));
  EXPECT_GT(http_get(port(), "/large", bearer).size(), kLargeBytes);
  EXPECT_THAT(http_exchange(port(), "POST / HTTP/1.1\r\nHost: x\r\n" + bearer + "\r\n"),
              StartsWith("HTTP/1.1 405 "));
  expect_serves();
}

TEST_F(StatusServerTest, NobodyElseIs) {
  std::string wrong = token_;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  const std::string targets[] = {"/",
                                 "/?token=",
                                 "/?token=" + wrong,
                                 "/?token=" + token_.substr(1),
                                 "/?token=" + token_ + "0",
                                 "/?token=" + secret_.hex(),
                                 "/?nottoken=" + token_,
                                 "/token=" + token_,
                                 "/nowhere"};
  for (const std::string& target : targets) {
    const std::string answer = http_get(port(), target);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 ")) << target;
    EXPECT_THAT(answer, Not(HasSubstr("page of"))) << target;
    EXPECT_THAT(answer, HasSubstr("WWW-Authenticate: Bearer")) << target;
  }
  for (const std::string& header :
       {"Authorization: Bearer " + wrong, "Authorization: Basic " + token_, "Token: " + token_})
    EXPECT_THAT(http_get(port(), "/", header + "\r\n"), StartsWith("HTTP/1.1 401 ")) << header;
  expect_warned("no token, or a wrong one");
  EXPECT_LE(warnings_.size(), static_cast<size_t>(StatusServer::kMaxWarnings));
  expect_serves();
}

TEST_F(StatusServerTest, WhatIsNoHttpIsClosedWithoutAWord) {
  EXPECT_EQ(http_exchange(port(), "\x16\x03\x01 is how TLS begins\r\n\r\n"), "");
  EXPECT_EQ(http_exchange(port(), std::string(100'000, '\x5a')), "");
  EXPECT_EQ(http_exchange(port(), std::string(2000, '\0')), "");
  for (int i = 0; i < 50; ++i) RawSocket{port()};  // a port scanner
  expect_warned("bad method");
  expect_serves();
}

TEST_F(StatusServerTest, AnOversizedHeaderIsClosedEvenWithTheToken) {
  const std::string header = "X: " + std::string(StatusLimits().max_header_bytes, 'x') + "\r\n";
  EXPECT_EQ(http_get(port(), "/?token=" + token_, header), "");
  expect_serves();
}

TEST_F(StatusServerTest, ASlowClientIsClosedAndDelaysNobody) {
  RawSocket slow(port());
  const std::string request = "GET /?token=" + token_ + " HTTP/1.1\r\nX: ";
  bool there = true;
  for (size_t i = 0; there && i < request.size(); ++i) {
    there = slow.send(request.substr(i, 1)) && !slow.wait_closed(50);
    if (i == 2) expect_serves();
  }
  EXPECT_FALSE(there);  // and the request has no end
  expect_warned("timeout");
}

TEST_F(StatusServerTest, WhoDoesNotReadIsClosed) {
  const size_t before = test_support::open_sockets().size();
  RawSocket deaf(port());
  deaf.send("GET /huge?token=" + token_ + " HTTP/1.1\r\n\r\n");
  std::string got = deaf.receive(kPatienceMs);
  EXPECT_FALSE(got.empty());
  // The server has closed its end: ours is the only one more.
  EXPECT_TRUE(
      test_support::eventually([&] { return test_support::open_sockets().size() == before + 1; }));
  expect_serves();
  for (std::string part; !(part = deaf.receive(kPatienceMs)).empty();) got += part;
  EXPECT_LT(got.size(), kHugeBytes);
}

TEST_F(StatusServerTest, OfTooManyTheOldestMakesRoom) {
  std::deque<RawSocket> silent;
  for (int i = 0; i < 40; ++i) silent.emplace_back(port());
  expect_serves();
  for (RawSocket& each : silent) EXPECT_TRUE(each.wait_closed(kPatienceMs));
  expect_warned("too many connections were open");
}

TEST_F(StatusServerTest, APageIsToldItsQueryAndWhoseScriptsItMayRun) {
  const std::string files = http_get(port(), "/request?a=b&token=" + token_);
  EXPECT_THAT(files, HasSubstr(text("query a=b&token=", token_, ", token ", token_)));
  EXPECT_THAT(files, HasSubstr("script-src 'self'; style-src 'self'"));
  EXPECT_THAT(http_get(port(), "/?token=" + token_), HasSubstr("script-src 'unsafe-inline'"));
}

TEST_F(StatusServerTest, WithoutASecretTheLoopbackIsOpenToWhoNamesIt) {
  StatusServer::Options open = options("127.0.0.1:0");
  open.secret.reset();
  open.name = "dashboard";
  server_ = StatusServer::open(open).value();
  EXPECT_EQ(server_->url(), text("http://127.0.0.1:", port(), "/"));
  const auto asked_of = [&](const std::string& host) {
    return http_exchange(port(), text("GET /request?x HTTP/1.1\r\nHost: ", host, "\r\n\r\n"));
  };
  for (const char* host : {"127.0.0.1:9401", "localhost", "localhost:8080", "[::1]:7", "127.1.2.3"})
    EXPECT_THAT(asked_of(host), testing::EndsWith("query x, token ")) << host;
  for (const char* host : {"evil.example", "evil.example:9401", "127.0.0.1.evil.example", "",
                           "localhost.evil.example", "10.0.0.3", "[::2]"})
    EXPECT_THAT(asked_of(host), AllOf(StartsWith("HTTP/1.1 403 "), Not(HasSubstr("query"))))
        << host;
  expect_warned("the dashboard turned away 127.0.0.1:");
  open.at = "0.0.0.0:0";
  const auto elsewhere = StatusServer::open(open);
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_THAT(elsewhere.error().message, HasSubstr("a token is required"));
}

TEST_F(StatusServerTest, AnAddressThatCannotBeUsedIsNamed) {
  const std::string taken = text("127.0.0.1:", port());
  const auto second = StatusServer::open(options(taken));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kConfig);
  EXPECT_THAT(second.error().message, AllOf(HasSubstr(taken), HasSubstr("in use")));
  for (const char* at :
       {"9400", ":9400", "127.0.0.1:", "nosuchinterface0:9400", "192.0.2.7:9400"}) {
    const auto opened = StatusServer::open(options(at));
    ASSERT_FALSE(opened.ok()) << at;
    EXPECT_EQ(opened.error().code, Code::kConfig) << at;
  }
  EXPECT_EQ(status_address("lo:7").value().str(), "127.0.0.1:7");
  EXPECT_EQ(status_address("0.0.0.0:7").value().str(), "0.0.0.0:7");
}

TEST_F(StatusServerTest, ItsEndClosesEverything) {
  const test_support::ReservedPort reserved;
  const std::string at = text("127.0.0.1:", reserved.port());
  server_ = StatusServer::open(options(at)).value();
  RawSocket waiting(port());
  server_.reset();
  EXPECT_TRUE(waiting.wait_closed(kPatienceMs));
  EXPECT_TRUE(StatusServer::open(options(at)).ok());
}

}  // namespace
}  // namespace lockstep::launcher::net
