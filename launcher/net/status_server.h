// A few read-only pages about the job over HTTP, for a browser and for Prometheus, shown to who has
// the job's token only. The token follows from the secret and does not tell it, so that the secret
// never goes over plain HTTP (docs/SECURITY.md).
//
//   GET /PATH?token=TOKEN, or with the header "Authorization: Bearer TOKEN"
//     200 a page · 401 no or a wrong token, whatever was asked for · 404 · 405 not a GET
//     500, 503 the page cannot be made now
//   what is no HTTP, too long or too slow: closed without a word
//
// A thread of its own accepts, reads and makes pages, one at a time; each connection has one
// request. Nothing here can delay or end its owner, but for its destructor, which waits for the
// page that is being made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "launcher/net/endpoint.h"
#include "launcher/net/secret.h"

namespace lockstep::launcher::net {

struct StatusPage {
  unsigned status = 200;  // of HTTP
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};
// The page at a path ("/metrics"). Called by the server's thread alone.
using StatusPages = std::function<StatusPage(std::string_view path)>;

struct StatusLimits {
  size_t max_header_bytes = size_t{8} << 10;
  size_t max_connections = 16;  // at once; beyond, the oldest is closed
  int64_t request_ms = 2000;    // from accept to the whole request; then again for the answer
};

// 64 hexadecimal digits: HMAC-SHA256 of a fixed word under the job's secret.
std::string status_token(const Secret& secret);

// Where "HOST:PORT" or "INTERFACE:PORT" listens: HOST is one of this machine's addresses, or
// 0.0.0.0 or [::] for all of them. Errors: kConfig.
Result<Endpoint> status_address(const std::string& at);

class StatusServer {
 public:
  struct Options {
    Secret secret;
    std::string at;  // as status_address() reads it; port 0: the system chooses
    StatusPages pages;
    StatusLimits limits = {};
    // Takes a line about who was turned away, at most kMaxWarnings in 10 s; null: the log.
    std::function<void(const std::string&)> warn = nullptr;
  };
  static constexpr int kMaxWarnings = 10;

  // Errors: kConfig (no such address or interface, or the port is taken).
  static Result<std::unique_ptr<StatusServer>> open(Options options);
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  const Endpoint& listens_at() const;
  // What to open in a browser, the token in it: "http://10.0.0.3:9400/?token=…".
  std::string url() const;

 private:
  class Impl;
  explicit StatusServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::launcher::net
