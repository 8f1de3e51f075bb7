// Read-only pages over HTTP, for a browser and for Prometheus: of a job (--status-endpoint), and of
// runs in a folder (`lockstep serve`). They are shown to who has the token only. It follows from a
// secret and does not tell it, so that the secret never goes over plain HTTP (docs/SECURITY.md).
//
//   GET /PATH?token=TOKEN, or with the header "Authorization: Bearer TOKEN"
//     200 a page · 401 no or a wrong token, whatever was asked for · 404 · 405 not a GET
//     500, 503 the page cannot be made now
//     403 no token is asked for here, and the request names another host than this machine's
//     loopback: it may come from a page of somebody else, whose name leads here (DNS rebinding)
//   what is no HTTP, too long or too slow: closed without a word
//
// A thread of its own accepts, reads and makes pages, one at a time; each connection has one
// request. Nothing here can delay or end its owner, but for its destructor, which waits for the
// page that is being made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "launcher/net/endpoint.h"
#include "launcher/net/secret.h"

namespace lockstep::launcher::net {

// Where a page's scripts and styles may come from: the page itself, or files of this server.
enum class Scripts { kInline, kFiles };
struct StatusPage {
  unsigned status = 200;  // of HTTP
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  Scripts scripts = Scripts::kInline;
};
struct PageRequest {
  std::string_view path;        // "/metrics"
  std::string_view query = {};  // what stands after '?'
  std::string_view token = {};  // what was proved, for links in a page; "": no token is asked for
};
// Called by the server's thread alone.
using StatusPages = std::function<StatusPage(const PageRequest& request)>;

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
    // None: no token is asked for, and `at` must be an address of the loopback.
    std::optional<Secret> secret;
    std::string at;  // as status_address() reads it; port 0: the system chooses
    StatusPages pages;
    StatusLimits limits = {};
    // Takes a line about who was turned away, at most kMaxWarnings in 10 s; null: the log.
    std::function<void(const std::string&)> warn = nullptr;
    std::string name = "status page";  // in messages
  };
  static constexpr int kMaxWarnings = 10;

  // Errors: kConfig (no such address or interface, the port is taken, or there is neither a secret
  // nor a loopback).
  static Result<std::unique_ptr<StatusServer>> open(Options options);
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  const Endpoint& listens_at() const;
  // What to open in a browser, with the token if one is asked for:
  // "http://10.0.0.3:9400/?token=…".
  std::string url() const;

 private:
  class Impl;
  explicit StatusServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::launcher::net
