#include "launcher/net/network.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>  // before Asio, which forgets it

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "launcher/net/connection.h"
#include "launcher/net/descriptor_limit.h"
#include "launcher/net/dialer.h"
#include "launcher/net/reject_log.h"
#include "worker_link/store_wire.h"

namespace lockstep::launcher::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;
using Local = asio::local::stream_protocol;

constexpr size_t kScratchBytes = size_t{64} << 10;
constexpr int kSomethingElse = 512;  // operations of one wait(); then the caller has its turn
constexpr int64_t kNoDescriptorsPauseMs = 100;
constexpr size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;

Endpoint endpoint_of(const Tcp::endpoint& at) { return {at.address().to_string(), at.port()}; }

Channel::Nonce fresh_nonce() {
  Channel::Nonce nonce;
  fill_random(nonce);
  return nonce;
}

// Who is at the other end of a Unix socket; empty: another user.
std::optional<std::string> own_process(int descriptor) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  if (peer.uid != ::geteuid()) return std::nullopt;
  return text("process ", peer.pid);
}

Result<void> check_private_folder(const std::filesystem::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0)
    return Error{Code::kIo, text("no folder ", folder.string())};
  if (status.st_uid != ::geteuid() || (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return Error{Code::kConfig, text("other users can enter ", folder.string(),
                                     ": the workers' socket needs a private folder (mode 0700)")};
  return {};
}

}  // namespace

class Network::Impl : public Connection::Events {
 public:
  explicit Impl(NetworkOptions options)
      : options_(std::move(options)),
        rejects_(kMaxWarnings, options_.warn),
        work_(context_.get_executor()),
        scratch_(kScratchBytes) {
    fill_random(std::span(reinterpret_cast<unsigned char*>(&jitter_seed_), sizeof jitter_seed_));
  }

  Result<Endpoint> listen(const Endpoint& at);
  Result<void> listen_local(const std::filesystem::path& path);
  PeerId dial(const Endpoint& to, int64_t deadline_ms);
  void send(PeerId peer, std::string payload);
  void close(PeerId peer, const std::string& reason);
  std::vector<ConnectionEvent> wait(int64_t timeout_ms, const std::vector<int>& descriptors);
  NetworkCounts counts() const { return counts_; }

  void on_open(Connection& connection) override;
  void on_frame(Connection& connection, std::string payload) override {
    events_.push_back(Received{connection.identity().peer, std::move(payload)});
  }
  void on_end(Connection& connection, const std::string& reason, End how) override;

 private:
  using ConnectionPtr = std::shared_ptr<Connection>;
  template <typename Acceptor>
  void accept(Acceptor& acceptor);
  void take(Tcp::socket socket);
  void take(Local::socket socket);
  void on_dialed(PeerId peer, Tcp::socket socket);
  void begin(Connection::Socket socket, Channel channel, Connection::Identity identity);
  void reject(const std::string& what);
  std::map<PeerId, ConnectionPtr>& before_proof(const Connection& connection) {
    return connection.identity().via == Via::kDialed ? dialed_ : unproven_;
  }

  // The context outlives the sockets; destroyed with operations under way, it drops them uncalled.
  const NetworkOptions options_;
  RejectLog rejects_;
  NetworkCounts counts_;
  std::vector<ConnectionEvent> events_;
  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::vector<char> scratch_;
  std::vector<std::unique_ptr<Tcp::acceptor>> acceptors_;
  std::vector<std::unique_ptr<Local::acceptor>> local_acceptors_;
  std::map<PeerId, std::shared_ptr<Dialer>> dials_;
  // By what is known of them; the oldest first.
  std::map<PeerId, ConnectionPtr> unproven_, dialed_, peers_;
  size_t local_count_ = 0;
  PeerId last_id_ = 0;
  uint64_t jitter_seed_ = 0;
};

Result<Endpoint> Network::Impl::listen(const Endpoint& at) {
  error_code error;
  const auto address = asio::ip::make_address(at.host, error);
  if (error) return Error{Code::kConfig, text("\"", at.host, "\" is not an address to listen at")};
  const Tcp::endpoint endpoint(address, at.port);
  auto acceptor = std::make_unique<Tcp::acceptor>(context_);
  acceptor->open(endpoint.protocol(), error);
  if (!error) {
    close_on_exec(acceptor->native_handle());
    acceptor->set_option(Tcp::acceptor::reuse_address(true), error);
  }
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(Tcp::acceptor::max_listen_connections, error);
  if (error)
    return Error{Code::kConfig, text("cannot listen at ", at.str(), ": ", error.message())};
  raise_descriptor_limit();
  acceptors_.push_back(std::move(acceptor));
  accept(*acceptors_.back());
  return endpoint_of(acceptors_.back()->local_endpoint());
}

Result<void> Network::Impl::listen_local(const std::filesystem::path& path) {
  if (path.native().size() > kMaxSocketPath)
    return Error{Code::kConfig, text("the path of a Unix socket has at most ", kMaxSocketPath,
                                     " characters; this is longer: ", path.string())};
  LOCKSTEP_RETURN_IF_ERROR(check_private_folder(path.parent_path()));
  error_code error;
  auto acceptor = std::make_unique<Local::acceptor>(context_);
  acceptor->open(Local(), error);
  if (!error) {
    close_on_exec(acceptor->native_handle());
    acceptor->bind(Local::endpoint(path.native()), error);
  }
  if (!error) acceptor->listen(Local::acceptor::max_listen_connections, error);
  if (error) return Error{Code::kIo, text("socket ", path.string(), ": ", error.message())};
  raise_descriptor_limit();
  local_acceptors_.push_back(std::move(acceptor));
  accept(*local_acceptors_.back());
  return {};
}

template <typename Acceptor>
void Network::Impl::accept(Acceptor& acceptor) {
  using Socket = typename Acceptor::protocol_type::socket;
  acceptor.async_accept([this, &acceptor](const error_code& error, Socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) {
      close_on_exec(socket.native_handle());
      take(std::move(socket));
      return accept(acceptor);
    }
    // No descriptors, no memory: those that end give some back.
    reject(text("cannot accept a connection: ", error.message()));
    auto pause = std::make_shared<asio::steady_timer>(context_);
    pause->expires_after(std::chrono::milliseconds(kNoDescriptorsPauseMs));
    pause->async_wait([this, &acceptor, pause](const error_code& cancelled) {
      if (!cancelled) accept(acceptor);
    });
  });
}

void Network::Impl::take(Tcp::socket socket) {
  error_code error;
  const auto remote = socket.remote_endpoint(error);
  const auto local = error ? Tcp::endpoint() : socket.local_endpoint(error);
  ++counts_.accepted;
  if (error) return reject("it closed before it was accepted");
  set_tcp_options(socket.native_handle(), options_.limits.silence_ms);
  if (unproven_.size() >= options_.limits.max_unauthenticated) {
    const ConnectionPtr oldest = unproven_.extract(unproven_.begin()).mapped();
    oldest->close("");
    reject(text(oldest->identity().name, ": it had not authenticated, and ",
                options_.limits.max_unauthenticated, " other connections were waiting"));
  }
  const Endpoint from = endpoint_of(remote);
  begin(std::move(socket),
        Channel::listener(options_.secret, fresh_nonce(), options_.limits.max_frame_bytes),
        {++last_id_, Via::kAccepted, endpoint_of(local), from, from.str()});
}

void Network::Impl::take(Local::socket socket) {
  const auto process = own_process(socket.native_handle());
  if (!process) return reject("a process of another user connected to the workers' socket");
  if (local_count_ >= options_.limits.max_local)
    return reject("too many connections at the workers' socket");
  ++local_count_;
  begin(std::move(socket), Channel::plain(kStoreMaxBytes),
        {++last_id_, Via::kLocal, {}, {}, *process});
}

void Network::Impl::begin(Connection::Socket socket, Channel channel,
                          Connection::Identity identity) {
  const PeerId peer = identity.peer;
  auto connection =
      std::make_shared<Connection>(*this, std::move(socket), std::move(channel),
                                   std::move(identity), options_.limits, std::span(scratch_));
  before_proof(*connection).emplace(peer, connection);
  connection->start();
}

PeerId Network::Impl::dial(const Endpoint& to, int64_t deadline_ms) {
  const PeerId peer = ++last_id_;
  const int64_t deadline_ns = system_clock().monotonic_ns() + deadline_ms * kNsPerMs;
  const double jitter = static_cast<double>(mix64(jitter_seed_ ^ peer) >> 11) * 0x1p-53;
  auto dialer = std::make_shared<Dialer>(context_, options_.limits, to, options_.dial_from,
                                         deadline_ns, jitter);
  dials_.emplace(peer, dialer);
  dialer->start([this, peer](Tcp::socket socket) { on_dialed(peer, std::move(socket)); },
                [this, peer](const std::string& reason, End last) {
                  dials_.erase(peer);
                  events_.push_back(Closed{peer, reason, last == End::kOtherSecret});
                });
  return peer;
}

void Network::Impl::on_dialed(PeerId peer, Tcp::socket socket) {
  error_code error;
  const auto remote = socket.remote_endpoint(error);
  const auto local = error ? Tcp::endpoint() : socket.local_endpoint(error);
  if (error) return dials_.at(peer)->try_again(error.message());
  const Endpoint to = endpoint_of(remote);
  begin(std::move(socket),
        Channel::dialer(options_.secret, fresh_nonce(), options_.limits.max_frame_bytes),
        {peer, Via::kDialed, endpoint_of(local), to, to.str()});
}

void Network::Impl::on_open(Connection& connection) {
  const Connection::Identity& identity = connection.identity();
  auto proven = before_proof(connection).extract(identity.peer);
  LOCKSTEP_CHECK(!proven.empty());
  peers_.insert(std::move(proven));
  if (identity.via == Via::kAccepted) ++counts_.authenticated;
  dials_.erase(identity.peer);
  events_.push_back(Connected{identity.peer, identity.via, identity.local, identity.remote});
}

void Network::Impl::on_end(Connection& connection, const std::string& reason, End how) {
  const auto [peer, via] = std::pair(connection.identity().peer, connection.identity().via);
  if (via == Via::kLocal) --local_count_;
  const bool was_open = peers_.erase(peer) > 0;
  if (was_open) events_.push_back(Closed{peer, reason});
  if (how != End::kPlain || (via == Via::kAccepted && !was_open)) reject(reason);
  if (before_proof(connection).erase(peer) == 0) return;
  if (via == Via::kDialed) dials_.at(peer)->try_again(reason, how);
}

void Network::Impl::reject(const std::string& what) {
  ++counts_.rejected;
  rejects_.add(text("rejected a connection: ", what), system_clock().monotonic_ns());
}

void Network::Impl::send(PeerId peer, std::string payload) {
  LOCKSTEP_CHECK(payload.size() <= options_.limits.max_frame_bytes, payload.size());
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  const ConnectionPtr connection = found->second;
  connection->send(payload);
}

void Network::Impl::close(PeerId peer, const std::string& reason) {
  std::erase_if(events_, [peer](const ConnectionEvent& event) {
    return std::visit([peer](const auto& each) { return each.peer == peer; }, event);
  });
  if (const auto dial = dials_.find(peer); dial != dials_.end()) {
    dial->second->stop();
    dials_.erase(dial);
  }
  for (auto* const all : {&unproven_, &dialed_, &peers_}) {
    const auto found = all->find(peer);
    if (found == all->end()) continue;
    const ConnectionPtr connection = found->second;
    all->erase(found);
    if (connection->identity().via == Via::kLocal) --local_count_;
    connection->close(reason);
  }
}

std::vector<ConnectionEvent> Network::Impl::wait(int64_t timeout_ms,
                                                 const std::vector<int>& descriptors) {
  // Shared with handlers that may run after this call.
  const auto readable = std::make_shared<bool>(false);
  std::vector<asio::posix::stream_descriptor> watched;
  watched.reserve(descriptors.size());
  for (const int each : descriptors) {
    error_code error;
    asio::posix::stream_descriptor descriptor(context_);
    descriptor.assign(each, error);
    if (error) continue;  // named twice
    descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                          [readable](const error_code& failed) {
                            if (!failed) *readable = true;
                          });
    watched.push_back(std::move(descriptor));
  }
  const int64_t deadline_ns = system_clock().monotonic_ns() + timeout_ms * kNsPerMs;
  for (int64_t left_ns = timeout_ms * kNsPerMs; events_.empty() && !*readable && left_ns > 0;
       left_ns = deadline_ns - system_clock().monotonic_ns())
    context_.run_one_for(std::chrono::nanoseconds(left_ns));
  for (int i = 0; i < kSomethingElse && context_.poll_one() > 0; ++i) {
  }
  for (auto& each : watched) (void)each.release();
  return std::exchange(events_, {});
}

Network::Network(NetworkOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Network::~Network() = default;
Result<Endpoint> Network::listen(const Endpoint& at) { return impl_->listen(at); }
Result<void> Network::listen_local(const std::filesystem::path& path) {
  return impl_->listen_local(path);
}
PeerId Network::dial(const Endpoint& to, int64_t deadline_ms) {
  return impl_->dial(to, deadline_ms);
}
void Network::send(PeerId peer, std::string payload) { impl_->send(peer, std::move(payload)); }
void Network::close(PeerId peer, const std::string& reason) { impl_->close(peer, reason); }
std::vector<ConnectionEvent> Network::wait(int64_t timeout_ms,
                                           const std::vector<int>& descriptors) {
  return impl_->wait(timeout_ms, descriptors);
}
NetworkCounts Network::counts() const { return impl_->counts(); }

}  // namespace lockstep::launcher::net
