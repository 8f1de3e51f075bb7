// The protocol of one connection without the connection: bytes in, bytes and frames out. Pure.
//
//   dialer                                                listener
//   hello   "LKST" version 'D' 0 0, nonce_D (32)   ---->
//                  <----  "LKST" version 'L' 0 0, nonce_L (32), proof_L (32)
//   proof_D (32)                                   ---->
//   frames  <---->  length (4) kind (1) code (16) payload
//
//   proof_X = HMAC-SHA256(secret, "lockstep proof X", version, nonce_D, nonce_L)
//   key_X   = HMAC-SHA256(secret, "lockstep frame X", version, nonce_D, nonce_L)
//   code    = first 16 bytes of HMAC-SHA256(key of the sender, number (8) length kind payload)
//
// Both nonces are fresh, so a recorded handshake proves nothing; the role is in the proof and in
// the key, so nothing can be sent back to where it came from. `number` counts the frames of a
// direction from 0 and is not sent: a frame left out, repeated or moved has the wrong code. Until
// the proof a listener holds a few bytes of the peer. Numbers are little-endian.
//
// A plain channel, for the Unix socket: frames are length (4) payload, open from the start.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "launcher/net/mac.h"
#include "launcher/net/secret.h"

namespace lockstep::launcher::net {

enum class FrameKind : uint8_t {
  kPayload,
  kGoodbye,  // the sender closes; the payload says why
};
struct Frame {
  FrameKind kind = FrameKind::kPayload;
  std::string payload;
};

// Movable. After an error from on_bytes: only take_frame may be called.
class Channel {
 public:
  using Nonce = std::array<unsigned char, 32>;
  static constexpr size_t kGreetingBytes = 8, kProofBytes = 32, kCodeBytes = 16;
  static constexpr size_t kHelloBytes = kGreetingBytes + sizeof(Nonce);
  static constexpr size_t kMaxHandshakeBytes = kHelloBytes + kProofBytes;

  // `nonce` is random and used once.
  static Channel dialer(const Secret& secret, const Nonce& nonce, size_t max_frame_bytes);
  static Channel listener(const Secret& secret, const Nonce& nonce, size_t max_frame_bytes);
  static Channel plain(size_t max_frame_bytes);

  // What the peer sent, cut anywhere. Frames that came whole before an error can be taken.
  // Errors: kCorrupt, with what is wrong: drop the connection.
  Result<void> on_bytes(std::string_view bytes);
  std::string take_output();  // what the handshake wants to send now; may be empty
  bool open() const { return state_ == State::kOpen; }
  std::optional<Frame> take_frame();
  // The bytes of one frame; they must be sent in the order of the calls. Requires: open(), and a
  // payload of at most max_frame_bytes; a plain channel has kPayload only.
  std::string seal(FrameKind kind, std::string_view payload);

 private:
  enum class State { kHello, kAnswer, kProof, kOpen };
  struct Direction {
    Key key{};
    uint64_t number = 0;
  };
  Channel(State state, size_t max_frame_bytes) : state_(state), max_frame_bytes_(max_frame_bytes) {}

  Result<bool> step();  // true: one part of the input is done with
  Result<bool> on_hello();
  Result<bool> on_answer();
  Result<bool> on_proof();
  Result<bool> on_frame();
  Result<void> check_greeting(char role) const;
  Digest derive(std::string_view what, char role) const;
  void derive_keys(char own, char other);
  std::string code_of(const Direction& direction, std::string_view head,
                      std::string_view payload) const;
  std::string_view input() const { return std::string_view(input_).substr(done_); }
  size_t head_bytes() const { return plain_ ? sizeof(uint32_t) : sizeof(uint32_t) + 1; }

  State state_;
  size_t max_frame_bytes_;
  bool plain_ = false;
  std::optional<Secret> secret_;  // gone once the keys are there
  Nonce nonce_dialer_{}, nonce_listener_{};
  Direction in_, out_;
  std::string input_, output_;
  size_t done_ = 0;  // of input_
  std::deque<Frame> frames_;
};

}  // namespace lockstep::launcher::net
