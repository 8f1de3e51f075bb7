// net_fuzz ROUNDS: damaged bytes for whatever reads bytes of others: the handshake from both
// sides, frames, the store's requests and answers, the agents' messages. Run it under the
// sanitizers, too.
// What must hold: nothing crashes; nobody comes in without the secret; an open channel delivers the
// frames that were sent, in order, up to the damage, and nothing else.
// Another seed (support/seed.h) is other damage.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "launcher/control/message.h"
#include "launcher/net/channel.h"
#include "launcher/net/store_server.h"
#include "tests/support/seed.h"

namespace lockstep::launcher::net {
namespace {

constexpr size_t kMaxFrame = 2000;
constexpr int kMessages = 20;  // of a round

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  uint64_t next() { return mix64(seed_ + 0x9e3779b97f4a7c15ULL * ++count_); }
  size_t below(size_t n) { return n == 0 ? 0 : next() % n; }
  bool chance(size_t one_in) { return below(one_in) == 0; }
  std::string bytes(size_t n) {
    std::string out(n, '\0');
    for (char& c : out) c = static_cast<char>(next());
    return out;
  }

 private:
  const uint64_t seed_;
  uint64_t count_ = 0;
};

std::string damaged(Random& random, std::string bytes, const std::string& other) {
  for (size_t times = 1 + random.below(3); times > 0; --times) {
    const size_t at = random.below(bytes.size());
    const size_t length = random.below(bytes.size() - at + 1);
    switch (random.below(8)) {
      case 0: bytes.insert(at, random.bytes(random.below(40))); break;
      case 1: bytes.erase(at, length); break;
      case 2: bytes.insert(at, bytes.substr(at, length)); break;
      case 3: bytes.resize(at); break;
      case 4: bytes.replace(at, length, other.substr(0, length)); break;
      case 5:  // a length, at an end of its range
        if (at + 4 <= bytes.size())
          bytes.replace(at, 4, random.chance(2) ? "\xff\xff\xff\xff" : "\xff\xff\xff\x7f");
        break;
      default:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
    }
  }
  return bytes;
}

// In pieces, until one is refused.
bool feed(Random& random, Channel& channel, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = 1 + random.below(random.chance(2) ? 8 : bytes.size());
    if (!channel.on_bytes(std::string_view(bytes).substr(at, n)).ok()) return false;
    at += n;
  }
  return true;
}

Channel::Nonce nonce(Random& random) {
  Channel::Nonce bytes;
  for (unsigned char& each : bytes) each = static_cast<unsigned char>(random.next());
  return bytes;
}

struct Talk {
  Channel dialer, listener;
  std::string hello, answer, proof;
  Talk(Random& random, const Secret& secret)
      : dialer(Channel::dialer(secret, nonce(random), kMaxFrame)),
        listener(Channel::listener(secret, nonce(random), kMaxFrame)) {
    hello = dialer.take_output();
    LOCKSTEP_CHECK(listener.on_bytes(hello).ok());
    answer = listener.take_output();
    LOCKSTEP_CHECK(dialer.on_bytes(answer).ok());
    proof = dialer.take_output();
    LOCKSTEP_CHECK(listener.on_bytes(proof).ok());
    LOCKSTEP_CHECK(dialer.open() && listener.open());
  }
};

// Recorded handshakes, damaged or not, open nothing that has a nonce of its own.
void fuzz_handshake(Random& random, const Secret& secret) {
  const Talk recorded(random, secret), other(random, secret);
  Channel listener = Channel::listener(secret, nonce(random), kMaxFrame);
  std::string to_listener = recorded.hello;
  if (random.chance(2)) to_listener = damaged(random, to_listener, other.answer);
  if (feed(random, listener, to_listener)) feed(random, listener, recorded.proof);
  LOCKSTEP_CHECK(!listener.open());
  Channel dialer = Channel::dialer(secret, nonce(random), kMaxFrame);
  feed(random, dialer,
       random.chance(2) ? recorded.answer : damaged(random, recorded.answer, other.hello));
  LOCKSTEP_CHECK(!dialer.open());
}

void fuzz_frames(Random& random, const Secret& secret) {
  Talk talk(random, secret);
  std::vector<std::string> sent;
  std::string wire;
  for (size_t i = 0; i < 1 + random.below(4); ++i) {
    sent.push_back(random.bytes(random.below(random.chance(4) ? kMaxFrame : 60)));
    wire += talk.dialer.seal(FrameKind::kPayload, sent.back());
  }
  const std::string bad = damaged(random, wire, talk.listener.seal(FrameKind::kPayload, "back"));
  const bool accepted = feed(random, talk.listener, bad);
  size_t got = 0;
  while (const auto frame = talk.listener.take_frame()) {
    LOCKSTEP_CHECK(got < sent.size() && frame->payload == sent[got], "frame ", got);
    ++got;
  }
  // All of them, only when the wire begins as it was sent.
  LOCKSTEP_CHECK(got < sent.size() || bad.starts_with(wire), got);
  LOCKSTEP_CHECK(accepted || bad != wire);
}

void fuzz_plain(Random& random) {
  Channel plain = Channel::plain(kMaxFrame);
  const std::string wire = Channel::plain(kMaxFrame).seal(FrameKind::kPayload, random.bytes(20));
  feed(random, plain, damaged(random, wire + wire, wire));
  while (const auto frame = plain.take_frame()) LOCKSTEP_CHECK(frame->payload.size() <= kMaxFrame);
}

StoreRequest random_request(Random& random) {
  StoreRequest request;
  request.operation = static_cast<StoreOperation>(1 + random.below(8));
  request.number = static_cast<int64_t>(random.next());
  request.space = random.chance(8) ? "g0" : "g1";
  const size_t keys = request.operation == StoreOperation::kCount ? 0 : 1 + random.below(2);
  for (size_t i = 0; i < keys; ++i) request.keys.push_back(text("k", random.below(6)));
  const size_t values = request.operation == StoreOperation::kSet          ? 1
                        : request.operation == StoreOperation::kCompareSet ? 2
                                                                           : 0;
  for (size_t i = 0; i < values; ++i) request.values.push_back(random.bytes(random.below(5)));
  return request;
}

// Nobody gets an answer that did not ask, or two; limits hold.
void fuzz_store(Random& random) {
  StoreLimits limits{.max_key_bytes = 8,
                     .max_value_bytes = 16,
                     .max_request_keys = 4,
                     .max_keys = 5,
                     .max_total_bytes = 60,
                     .max_parked = 6};
  StoreServer server(limits);
  server.open("g1");
  std::vector<bool> waits(8);
  for (int i = 0; i < 30; ++i) {
    const size_t peer = random.below(waits.size());
    const StoreClient client{peer % 2, peer};
    if (random.chance(10)) {
      server.on_client_gone(client);
      waits[peer] = false;
      continue;
    }
    const std::string good = encode(random_request(random));
    const bool waited = waits[peer];
    waits[peer] = true;
    const auto request =
        random.chance(3) ? damaged(random, good, encode(random_request(random))) : good;
    StoreReplies replies = server.on_request(client, request);
    if (random.chance(20)) {
      for (const StoreReply& each : server.forget("g1", "over")) replies.push_back(each);
      server.open("g1");
    }
    for (const StoreReply& reply : replies) {
      LOCKSTEP_CHECK(decode_store_answer(reply.bytes).ok());
      LOCKSTEP_CHECK(waits.at(reply.client.peer), "an answer to nobody");
      const bool second_request_refused = waited && reply.client.peer == peer;
      if (!second_request_refused) waits[reply.client.peer] = false;
    }
    LOCKSTEP_CHECK(server.key_count() <= limits.max_keys);
    LOCKSTEP_CHECK(server.parked_count() <= limits.max_parked);
    (void)decode_store_answer(damaged(random, encode(StoreAnswer{}), good)).ok();
  }
}

control::Message random_message(Random& random) {
  const auto number = [&random] { return static_cast<int64_t>(random.next()); };
  const auto words = [&random] { return random.bytes(random.below(20)); };
  if (random.chance(8)) return control::NotLeader{{random.next(), words()}};
  if (random.chance(8)) return control::StoreBytes{random.next(), random.chance(2), words()};
  if (random.chance(2)) {
    control::Order order;
    order.leader = random.next();
    order.generation = number() & (control::kMostGeneration - 1);
    order.duty = static_cast<control::Duty>(random.below(5));
    order.count = order.world_size = 1;
    order.nonce = words();
    order.standbys.assign(random.below(3), {random.next(), words()});
    for (size_t i = random.below(40); i > 0; --i) order.members.push_back(random.next());
    return order;
  }
  control::Report report;
  report.id = random.next();
  report.name = words();
  report.pids.assign(random.below(9), 7);
  report.spawn_error = words();
  report.samples.assign(random.below(9), {});
  for (Sample& sample : report.samples) sample.progress.step = number();
  report.exits.assign(random.below(3), {});
  for (WorkerExit& exit : report.exits) {
    exit.node_lost = words();
    exit.log_lines.assign(random.below(4), words());
  }
  return report;
}

// What was sent is read as it was sent; what is damaged is refused, or a message like any other.
void fuzz_messages(Random& random) {
  const std::string good = control::encode(random_message(random));
  const auto same = control::decode(good);
  LOCKSTEP_CHECK(same.ok() && control::encode(same.value()) == good);
  const auto other = control::encode(random_message(random));
  const auto read = control::decode(damaged(random, good, other));
  if (!read.ok()) return;
  const std::string again = control::encode(read.value());
  LOCKSTEP_CHECK(control::decode(again).ok() && control::is_sound(read.value()));
}

int run(int64_t rounds, uint64_t seed) {
  std::printf("net_fuzz: %lld rounds, LOCKSTEP_SEED=%llu\n", static_cast<long long>(rounds),
              static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  Random random(seed);
  std::string digits;
  for (int i = 0; i < 4; ++i) digits += hex64(random.next());
  const Secret secret = Secret::parse(digits, "a fuzzer").value();
  for (int64_t round = 0; round < rounds; ++round) {
    fuzz_handshake(random, secret);
    fuzz_frames(random, secret);
    fuzz_plain(random);
    fuzz_store(random);
    for (int i = 0; i < kMessages; ++i) fuzz_messages(random);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::launcher::net

int main(int argc, char** argv) {
  return lockstep::launcher::net::run(argc > 1 ? std::atoll(argv[1]) : 1000,
                                      lockstep::test_support::seed_or(1));
}
