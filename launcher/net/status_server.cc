#include "launcher/net/status_server.h"

#include <signal.h>
#include <sys/socket.h>

#include <utility>  // before Asio, which forgets it

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "launcher/net/mac.h"
#include "launcher/net/reject_log.h"

namespace lockstep::launcher::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Tcp = asio::ip::tcp;
using Request = http::request<http::empty_body>;
using Response = http::response<http::string_body>;

constexpr char kTokenWord[] = "lockstep status page";  // no other use of the secret begins so
constexpr int64_t kAcceptPauseMs = 100;                // no descriptors: those that end give some
constexpr std::string_view kAnyV4 = "0.0.0.0", kAnyV6 = "::";
constexpr char kInlinePolicy[] =
    "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'";
constexpr char kFilesPolicy[] =
    "default-src 'none'; connect-src 'self'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

// Of the words after '?', the value of `token`; a token needs no percent signs.
std::string_view token_of_query(std::string_view target) {
  constexpr std::string_view kKey = "token=";
  const size_t question = target.find('?');
  std::string_view rest = question == target.npos ? "" : target.substr(question + 1);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    if (rest.starts_with(kKey)) return rest.substr(kKey.size(), end - kKey.size());
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return "";
}

std::string_view token_of_header(std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  return authorization.starts_with(kScheme) ? authorization.substr(kScheme.size()) : "";
}

std::string_view words(boost::string_view from) { return {from.data(), from.size()}; }

// Whether the header Host, "localhost:9401", names the loopback, whatever the port: it may be the
// end of an SSH tunnel.
bool names_loopback(std::string_view host) {
  const size_t colon = host.rfind(':');
  if (colon != host.npos && host.find(']', colon) == host.npos) host = host.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host == "localhost" || is_loopback(std::string(host));
}

Response answer(const Request& request, StatusPage page) {
  Response response(static_cast<http::status>(page.status), request.version());
  response.set(http::field::content_type, page.content_type);
  response.set(http::field::cache_control, "no-store");
  response.set("Referrer-Policy", "no-referrer");  // the token is in the address
  response.set("X-Content-Type-Options", "nosniff");
  response.set("Content-Security-Policy",
               page.scripts == Scripts::kFiles ? kFilesPolicy : kInlinePolicy);
  if (page.status == 401) response.set(http::field::www_authenticate, "Bearer");
  if (page.status == 405) response.set(http::field::allow, "GET");
  response.keep_alive(false);
  response.body() = std::move(page.body);
  response.prepare_payload();
  return response;
}

}  // namespace

// One thread runs context_; everything of the visits happens there.
class StatusServer::Impl {
 public:
  explicit Impl(Options options)
      : options_(std::move(options)),
        token_(options_.secret ? status_token(*options_.secret) : ""),
        rejects_(kMaxWarnings, options_.warn) {}
  ~Impl() { context_.stop(); }  // the thread joins before what it uses goes

  Result<void> open();
  const Endpoint& listens_at() const { return listens_at_; }
  const std::string& token() const { return token_; }

 private:
  // One connection with its one request.
  struct Visit {
    Visit(Tcp::socket socket, std::string name, const StatusLimits& limits)
        : stream(std::move(socket)), from(std::move(name)), buffer(limits.max_header_bytes) {
      parser.header_limit(static_cast<uint32_t>(limits.max_header_bytes));
    }
    beast::tcp_stream stream;
    const std::string from;
    beast::flat_buffer buffer;
    http::request_parser<http::empty_body> parser;
    Response response;
  };
  using VisitPtr = std::shared_ptr<Visit>;

  void await_visitor();
  void take(Tcp::socket socket);
  void reply(const VisitPtr& visit);
  StatusPage page_for(const Visit& visit);
  std::optional<StatusPage> refusal(const Visit& visit);
  void turn_away(const Visit& visit, const std::string& why);
  std::chrono::milliseconds limit() const {
    return std::chrono::milliseconds(options_.limits.request_ms);
  }

  const Options options_;
  const std::string token_;
  RejectLog rejects_;
  Endpoint listens_at_;
  std::deque<std::weak_ptr<Visit>> visits_;  // oldest first; those that ended are empty
  asio::io_context context_{1};
  Tcp::acceptor acceptor_{context_};
  asio::steady_timer pause_{context_};
  std::jthread thread_;
};

Result<void> StatusServer::Impl::open() {
  LOCKSTEP_TRY(listens_at_, status_address(options_.at));
  if (!options_.secret && !is_loopback(listens_at_.host))
    return Error{Code::kConfig,
                 text("no ", options_.name, " at ", listens_at_.str(),
                      ": other machines reach this address, so a token is required")};
  error_code error;
  const Tcp::endpoint endpoint(asio::ip::make_address(listens_at_.host, error), listens_at_.port);
  const int fd = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) error.assign(errno, boost::system::system_category());
  if (!error) acceptor_.assign(endpoint.protocol(), fd, error);
  if (!error) acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(Tcp::acceptor::max_listen_connections, error);
  if (!error) acceptor_.native_non_blocking(true, error);
  if (error)
    return Error{Code::kConfig, text("no ", options_.name, ": cannot listen at ", listens_at_.str(),
                                     ": ", error.message())};
  listens_at_.port = acceptor_.local_endpoint().port();
  await_visitor();
  // The thread takes no signal: they are for who started it.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this] { context_.run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {};
}

// accept4, as the owner may fork at any moment: no process that it starts may get the connection.
void StatusServer::Impl::await_visitor() {
  acceptor_.async_wait(Tcp::acceptor::wait_read, [this](const error_code& ended) {
    if (ended) return;
    error_code error;
    const int fd =
        ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      Tcp::socket socket(context_);
      socket.assign(acceptor_.local_endpoint().protocol(), fd, error);
      if (!error) take(std::move(socket));
      return await_visitor();
    }
    pause_.expires_after(std::chrono::milliseconds(kAcceptPauseMs));
    pause_.async_wait([this](const error_code& cancelled) {
      if (!cancelled) await_visitor();
    });
  });
}

void StatusServer::Impl::take(Tcp::socket socket) {
  error_code error;
  const auto remote = socket.remote_endpoint(error);
  if (error) return;  // gone already
  std::erase_if(visits_, [](const auto& visit) { return visit.expired(); });
  if (visits_.size() >= options_.limits.max_connections) {
    if (const VisitPtr oldest = visits_.front().lock()) {
      turn_away(*oldest, "too many connections were open");
      oldest->stream.close();
    }
    visits_.pop_front();
  }
  const auto visit = std::make_shared<Visit>(
      std::move(socket), Endpoint{remote.address().to_string(), remote.port()}.str(),
      options_.limits);
  visits_.push_back(visit);
  visit->stream.expires_after(limit());
  http::async_read_header(visit->stream, visit->buffer, visit->parser,
                          [this, visit](const error_code& failed, size_t) {
                            if (!failed) return reply(visit);
                            if (failed == asio::error::operation_aborted) return;
                            turn_away(*visit, failed.message());
                          });
}

void StatusServer::Impl::reply(const VisitPtr& visit) {
  visit->response = answer(visit->parser.get(), page_for(*visit));
  visit->stream.expires_after(limit());
  http::async_write(visit->stream, visit->response, [visit](const error_code&, size_t) {
    error_code ignored;
    visit->stream.socket().shutdown(Tcp::socket::shutdown_send, ignored);
  });
}

// Who may not see any page.
std::optional<StatusPage> StatusServer::Impl::refusal(const Visit& visit) {
  const Request& request = visit.parser.get();
  if (!options_.secret) {
    if (names_loopback(words(request[http::field::host]))) return std::nullopt;
    turn_away(visit, "it asked for another host name");
    return StatusPage{.status = 403,
                      .body = "Without a token this page is served at localhost only.\n"};
  }
  const bool by_header =
      same_bytes(token_of_header(words(request[http::field::authorization])), token_);
  const bool by_query = same_bytes(token_of_query(words(request.target())), token_);
  if (by_header || by_query) return std::nullopt;
  turn_away(visit, "no token, or a wrong one");
  return StatusPage{.status = 401,
                    .body =
                        "A token is missing or wrong. Use the address that lockstep printed; it "
                        "contains the token.\n"};
}

// No page may end the server's owner: whatever goes wrong in one is its answer.
StatusPage StatusServer::Impl::page_for(const Visit& visit) {
  if (auto refused = refusal(visit)) return *std::move(refused);
  const Request& request = visit.parser.get();
  if (request.method() != http::verb::get)
    return {.status = 405, .body = "Only GET is supported.\n"};
  const std::string_view target = words(request.target());
  const size_t question = std::min(target.find('?'), target.size());
  const size_t query = std::min(question + 1, target.size());
  try {
    return options_.pages(
        {.path = target.substr(0, question), .query = target.substr(query), .token = token_});
  } catch (const std::exception& e) {
    return {.status = 500, .body = text(e.what(), "\n")};
  }
}

void StatusServer::Impl::turn_away(const Visit& visit, const std::string& why) {
  rejects_.add(text("the ", options_.name, " turned away ", visit.from, ": ", why),
               system_clock().monotonic_ns());
}

std::string status_token(const Secret& secret) {
  return hex_digits(hmac_sha256(secret.bytes(), {kTokenWord}));
}

Result<Endpoint> status_address(const std::string& at) {
  auto wish = parse_endpoint(at);
  if (!wish) return wish.error().in("the status page");
  if (wish->host == kAnyV4 || wish->host == kAnyV6) return wish;
  auto local = choose_local_address(wish->host, {});
  if (!local) return local.error().in("the status page");
  return Endpoint{local->address, wish->port};
}

Result<std::unique_ptr<StatusServer>> StatusServer::open(Options options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  LOCKSTEP_RETURN_IF_ERROR(impl->open());
  return std::unique_ptr<StatusServer>(new StatusServer(std::move(impl)));
}

StatusServer::StatusServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StatusServer::~StatusServer() = default;

const Endpoint& StatusServer::listens_at() const { return impl_->listens_at(); }

std::string StatusServer::url() const {
  Endpoint shown = listens_at();
  if (shown.host == kAnyV4 || shown.host == kAnyV6)
    if (const auto local = choose_local_address("", {})) shown.host = local.value().address;
  const std::string& token = impl_->token();
  return text("http://", shown.str(), "/", token.empty() ? "" : "?token=" + token);
}

}  // namespace lockstep::launcher::net
