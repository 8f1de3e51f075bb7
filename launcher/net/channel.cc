#include "launcher/net/channel.h"

#include <cstring>

#include "base/byte_codec.h"
#include "base/check.h"

namespace lockstep::launcher::net {
namespace {

constexpr std::string_view kMagic = "LKST";
constexpr char kVersion = 1;
constexpr char kDialer = 'D', kListener = 'L';
constexpr size_t kVersionAt = kMagic.size(), kRoleAt = kVersionAt + 1;

std::string greeting(char role) { return std::string(kMagic) + kVersion + role + '\0' + '\0'; }

Error wrong(const std::string& what) { return {Code::kCorrupt, what}; }

template <typename Bytes>
void copy_into(Bytes& to, std::string_view from) {
  LOCKSTEP_CHECK(from.size() == sizeof to, from.size());
  std::memcpy(to.data(), from.data(), sizeof to);
}

}  // namespace

Channel Channel::dialer(const Secret& secret, const Nonce& nonce, size_t max_frame_bytes) {
  Channel channel(State::kAnswer, max_frame_bytes);
  channel.secret_ = secret;
  channel.nonce_dialer_ = nonce;
  channel.output_ = greeting(kDialer).append(view(nonce));
  return channel;
}

Channel Channel::listener(const Secret& secret, const Nonce& nonce, size_t max_frame_bytes) {
  Channel channel(State::kHello, max_frame_bytes);
  channel.secret_ = secret;
  channel.nonce_listener_ = nonce;
  return channel;
}

Channel Channel::plain(size_t max_frame_bytes) {
  Channel channel(State::kOpen, max_frame_bytes);
  channel.plain_ = true;
  return channel;
}

Result<void> Channel::on_bytes(std::string_view bytes) {
  input_.append(bytes);
  for (;;) {
    auto stepped = step();
    if (!stepped) return stepped.error();
    if (!*stepped) break;
  }
  input_.erase(0, done_);
  done_ = 0;
  return {};
}

Result<bool> Channel::step() {
  switch (state_) {
    case State::kHello: return on_hello();
    case State::kAnswer: return on_answer();
    case State::kProof: return on_proof();
    case State::kOpen: return on_frame();
  }
  return false;
}

// As far as it is there: a port scanner is turned away at its first byte.
Result<void> Channel::check_greeting(char role) const {
  const std::string expected = greeting(role);
  const std::string_view got = input().substr(0, kGreetingBytes);
  if (got.substr(0, kMagic.size()) != std::string_view(kMagic).substr(0, got.size()))
    return wrong("the other side is not a Lockstep agent");
  if (got.size() > kVersionAt && got[kVersionAt] != kVersion)
    return wrong(text("it speaks version ", static_cast<int>(got[kVersionAt]),
                      " of the protocol, and this agent speaks version ",
                      static_cast<int>(kVersion)));
  if (got != std::string_view(expected).substr(0, got.size()))
    return wrong("it took the wrong side of the handshake");
  return {};
}

Result<bool> Channel::on_hello() {
  LOCKSTEP_RETURN_IF_ERROR(check_greeting(kDialer));
  if (input().size() < kHelloBytes) return false;
  if (input().size() > kHelloBytes) return wrong("it sent data before it authenticated");
  copy_into(nonce_dialer_, input().substr(kGreetingBytes));
  done_ += kHelloBytes;
  output_ += greeting(kListener).append(view(nonce_listener_));
  output_ += view(derive("lockstep proof ", kListener));
  state_ = State::kProof;
  return true;
}

Result<bool> Channel::on_answer() {
  LOCKSTEP_RETURN_IF_ERROR(check_greeting(kListener));
  if (input().size() < kMaxHandshakeBytes) return false;
  copy_into(nonce_listener_, input().substr(kGreetingBytes, sizeof(Nonce)));
  if (!same_bytes(input().substr(kHelloBytes, kProofBytes),
                  view(derive("lockstep proof ", kListener))))
    return Error{Code::kDenied, text("its secret differs from this agent's, which comes from ",
                                     secret_->origin())};
  done_ += kMaxHandshakeBytes;
  output_ += view(derive("lockstep proof ", kDialer));
  derive_keys(kDialer, kListener);
  return true;
}

Result<bool> Channel::on_proof() {
  if (input().size() < kProofBytes) return false;
  if (!same_bytes(input().substr(0, kProofBytes), view(derive("lockstep proof ", kDialer))))
    return wrong("it does not know this job's secret");
  done_ += kProofBytes;
  derive_keys(kListener, kDialer);
  return true;
}

Result<bool> Channel::on_frame() {
  const size_t code_bytes = plain_ ? 0 : kCodeBytes;
  const std::string_view head = input().substr(0, head_bytes());
  if (head.size() < head_bytes()) return false;
  const size_t size = ByteReader(head).number<uint32_t>();
  if (size > max_frame_bytes_)
    return wrong(text("its frame of ", size, " bytes is over the limit of ", max_frame_bytes_));
  const size_t all = head_bytes() + code_bytes + size;
  if (input().size() < all) return false;
  const std::string_view payload = input().substr(head_bytes() + code_bytes, size);
  if (!plain_ && !same_bytes(input().substr(head_bytes(), kCodeBytes), code_of(in_, head, payload)))
    return wrong(text("the authentication code of frame ", in_.number,
                      " is wrong: the frame was altered, repeated or inserted on the way"));
  ++in_.number;
  const auto kind = plain_ ? FrameKind::kPayload : static_cast<FrameKind>(head.back());
  if (kind > FrameKind::kGoodbye)
    return wrong("it sent a kind of frame that this version does not know");
  frames_.push_back({kind, std::string(payload)});
  done_ += all;
  return true;
}

std::string Channel::take_output() { return std::exchange(output_, {}); }

std::optional<Frame> Channel::take_frame() {
  if (frames_.empty()) return std::nullopt;
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

std::string Channel::seal(FrameKind kind, std::string_view payload) {
  LOCKSTEP_CHECK(open() && payload.size() <= max_frame_bytes_, payload.size());
  LOCKSTEP_CHECK(!plain_ || kind == FrameKind::kPayload);
  ByteWriter out;
  out.number(static_cast<uint32_t>(payload.size()));
  if (!plain_) out.number(static_cast<uint8_t>(kind));
  std::string frame = out.take();
  frame.reserve(frame.size() + kCodeBytes + payload.size());
  if (!plain_) frame += code_of(out_, frame, payload);
  ++out_.number;
  frame += payload;
  return frame;
}

Digest Channel::derive(std::string_view what, char role) const {
  const char tail[] = {role, kVersion};
  return hmac_sha256(secret_->bytes(), {what, std::string_view(tail, sizeof tail),
                                        view(nonce_dialer_), view(nonce_listener_)});
}

void Channel::derive_keys(char own, char other) {
  out_.key = derive("lockstep frame ", own);
  in_.key = derive("lockstep frame ", other);
  secret_.reset();
  state_ = State::kOpen;
}

std::string Channel::code_of(const Direction& direction, std::string_view head,
                             std::string_view payload) const {
  ByteWriter number;
  number.number(direction.number);
  const Digest digest = hmac_sha256(direction.key, {number.take(), head, payload});
  return std::string(view(digest).substr(0, kCodeBytes));
}

}  // namespace lockstep::launcher::net
