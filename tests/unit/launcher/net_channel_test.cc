#include "launcher/net/channel.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/byte_codec.h"

namespace lockstep::launcher::net {
namespace {

constexpr size_t kMaxFrame = 1000;

Channel::Nonce nonce(unsigned char fill) {
  Channel::Nonce bytes;
  bytes.fill(fill);
  return bytes;
}

Secret secret(char digit) { return Secret::parse(std::string(64, digit), "a test").value(); }

// Moves what both want to send until nothing is left; the first error, if there is one.
Result<void> shake_hands(Channel& a, Channel& b) {
  for (;;) {
    const std::string from_a = a.take_output(), from_b = b.take_output();
    if (from_a.empty() && from_b.empty()) return {};
    if (!from_a.empty()) LOCKSTEP_RETURN_IF_ERROR(b.on_bytes(from_a));
    if (!from_b.empty()) LOCKSTEP_RETURN_IF_ERROR(a.on_bytes(from_b));
  }
}

struct Pair {
  Channel dialer = Channel::dialer(secret('a'), nonce(1), kMaxFrame);
  Channel listener = Channel::listener(secret('a'), nonce(2), kMaxFrame);
  Pair() {
    EXPECT_TRUE(shake_hands(dialer, listener).ok());
    EXPECT_TRUE(dialer.open() && listener.open());
  }
};

std::string message_of(const Result<void>& result) {
  return result.ok() ? "(no error)" : result.error().message;
}

TEST(NetChannel, HmacIsRfc4231) {
  const std::string key = "Jefe";
  const Digest digest =
      hmac_sha256(std::span(reinterpret_cast<const unsigned char*>(key.data()), key.size()),
                  {"what do ya want ", "for nothing?"});
  EXPECT_EQ(digest[0], 0x5b);
  EXPECT_EQ(digest[1], 0xdc);
  EXPECT_EQ(digest[30], 0x38);
  EXPECT_EQ(digest[31], 0x43);
}

TEST(NetChannel, FramesGoBothWaysCutAnywhere) {
  Pair p;
  const std::vector<std::string> sent = {"", "one", std::string(kMaxFrame, 'x'), "last"};
  std::string wire;
  for (const std::string& each : sent) wire += p.dialer.seal(FrameKind::kPayload, each);
  wire += p.dialer.seal(FrameKind::kGoodbye, "enough");
  for (const char byte : wire) ASSERT_TRUE(p.listener.on_bytes({&byte, 1}).ok());
  for (const std::string& each : sent) EXPECT_EQ(p.listener.take_frame()->payload, each);
  EXPECT_EQ(p.listener.take_frame()->kind, FrameKind::kGoodbye);
  EXPECT_FALSE(p.listener.take_frame());
  ASSERT_TRUE(p.dialer.on_bytes(p.listener.seal(FrameKind::kPayload, "back")).ok());
  EXPECT_EQ(p.dialer.take_frame()->payload, "back");
}

TEST(NetChannel, WhoDoesNotKnowTheSecretIsRefusedByEachSide) {
  Channel dialer = Channel::dialer(secret('a'), nonce(1), kMaxFrame);
  Channel listener = Channel::listener(secret('b'), nonce(2), kMaxFrame);
  const std::string refusal = message_of(shake_hands(dialer, listener));
  EXPECT_EQ(refusal, "its secret differs from this agent's, which comes from a test");
  EXPECT_FALSE(dialer.open());

  // A dialer that goes on all the same, with a proof of its own making.
  Channel other = Channel::listener(secret('b'), nonce(2), kMaxFrame);
  Channel cheat = Channel::dialer(secret('a'), nonce(1), kMaxFrame);
  ASSERT_TRUE(other.on_bytes(cheat.take_output()).ok());
  EXPECT_EQ(message_of(other.on_bytes(std::string(Channel::kProofBytes, 'p'))),
            "it does not know this job's secret");
  EXPECT_FALSE(other.open());
}

TEST(NetChannel, AListenersProofSentBackProvesNothing) {
  Channel listener = Channel::listener(secret('a'), nonce(2), kMaxFrame);
  // The attacker says hello with a nonce of its choice and sends the listener's own proof back.
  Channel hello = Channel::dialer(secret('0'), nonce(2), kMaxFrame);
  ASSERT_TRUE(listener.on_bytes(hello.take_output()).ok());
  const std::string proof = listener.take_output().substr(Channel::kHelloBytes);
  EXPECT_FALSE(listener.on_bytes(proof).ok());
  EXPECT_FALSE(listener.open());
  // Nor does a listener speak to a listener.
  Channel one = Channel::listener(secret('a'), nonce(3), kMaxFrame);
  Channel dialer = Channel::dialer(secret('a'), nonce(4), kMaxFrame);
  Channel two = Channel::listener(secret('a'), nonce(5), kMaxFrame);
  ASSERT_TRUE(two.on_bytes(dialer.take_output()).ok());
  EXPECT_EQ(message_of(one.on_bytes(two.take_output())), "it took the wrong side of the handshake");
}

TEST(NetChannel, ARecordedHandshakeIsWorthlessNextTime) {
  Channel dialer = Channel::dialer(secret('a'), nonce(1), kMaxFrame);
  Channel listener = Channel::listener(secret('a'), nonce(2), kMaxFrame);
  const std::string hello = dialer.take_output();
  ASSERT_TRUE(listener.on_bytes(hello).ok());
  ASSERT_TRUE(dialer.on_bytes(listener.take_output()).ok());
  const std::string proof = dialer.take_output();
  ASSERT_TRUE(listener.on_bytes(proof).ok());
  Channel next = Channel::listener(secret('a'), nonce(3), kMaxFrame);
  ASSERT_TRUE(next.on_bytes(hello).ok());
  EXPECT_FALSE(next.on_bytes(proof).ok());
}

TEST(NetChannel, RepeatedReorderedOrReturnedFramesAreRefused) {
  {
    Pair p;
    const std::string frame = p.dialer.seal(FrameKind::kPayload, "pay 1");
    ASSERT_TRUE(p.listener.on_bytes(frame).ok());
    EXPECT_EQ(message_of(p.listener.on_bytes(frame)),
              "the authentication code of frame 1 is wrong: the frame was altered, repeated or "
              "inserted on the way");
    EXPECT_EQ(p.listener.take_frame()->payload, "pay 1");
    EXPECT_FALSE(p.listener.take_frame());
  }
  {
    Pair p;
    const std::string first = p.dialer.seal(FrameKind::kPayload, "1");
    const std::string second = p.dialer.seal(FrameKind::kPayload, "2");
    EXPECT_FALSE(p.listener.on_bytes(second + first).ok());
    EXPECT_FALSE(p.listener.take_frame());
  }
  Pair p;
  EXPECT_FALSE(p.dialer.on_bytes(p.dialer.seal(FrameKind::kPayload, "mine")).ok());
}

TEST(NetChannel, EveryFlippedBitOfAFrameIsSeen) {
  Pair fresh;
  const std::string frame = fresh.dialer.seal(FrameKind::kPayload, "step 7");
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    Pair p;
    std::string bad = frame;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    const Result<void> taken = p.listener.on_bytes(bad + std::string(2 * kMaxFrame, '\0'));
    EXPECT_FALSE(taken.ok()) << bit;
    EXPECT_FALSE(p.listener.take_frame()) << bit;
  }
}

TEST(NetChannel, SizesAreBounded) {
  Pair p;
  ByteWriter head;
  head.number(uint32_t{kMaxFrame + 1});
  head.number(uint8_t{0});
  EXPECT_EQ(message_of(p.listener.on_bytes(head.take())),
            "its frame of 1001 bytes is over the limit of 1000");
  Channel listener = Channel::listener(secret('a'), nonce(2), kMaxFrame);
  EXPECT_EQ(message_of(listener.on_bytes("GET / HTTP/1.1\r\n")),
            "the other side is not a Lockstep agent");
  Channel early = Channel::listener(secret('a'), nonce(2), kMaxFrame);
  Channel dialer = Channel::dialer(secret('a'), nonce(1), kMaxFrame);
  EXPECT_EQ(message_of(early.on_bytes(dialer.take_output() + "x")),
            "it sent data before it authenticated");
  Channel version = Channel::listener(secret('a'), nonce(2), kMaxFrame);
  EXPECT_EQ(message_of(version.on_bytes(std::string("LKST\x09"))),
            "it speaks version 9 of the protocol, and this agent speaks version 1");
}

TEST(NetChannel, APlainOneIsLengthAndBytes) {
  Channel plain = Channel::plain(kMaxFrame);
  EXPECT_TRUE(plain.open());
  EXPECT_EQ(plain.seal(FrameKind::kPayload, "ab"), std::string("\2\0\0\0ab", 6));
  ASSERT_TRUE(plain.on_bytes(std::string("\2\0\0\0ab\0\0\0\0", 10)).ok());
  EXPECT_EQ(plain.take_frame()->payload, "ab");
  EXPECT_EQ(plain.take_frame()->payload, "");
  EXPECT_FALSE(plain.on_bytes("\xff\xff\xff\xff").ok());
}

}  // namespace
}  // namespace lockstep::launcher::net
