#include "launcher/control/message.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <type_traits>
#include <unordered_set>

#include "base/byte_codec.h"
#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

constexpr uint8_t kVersion = 9;

template <typename T>
concept Enumeration = std::is_enum_v<T>;

// The same walk over the fields writes and reads.
struct Writing {
  ByteWriter out;

  void operator()(bool value) { out.number(static_cast<uint8_t>(value)); }
  template <std::integral T>
  void operator()(T value) {
    out.number(value);
  }
  template <Enumeration T>
  void operator()(T value) {
    out.number(static_cast<std::underlying_type_t<T>>(value));
  }
  void operator()(double value) { out.number(std::bit_cast<uint64_t>(value)); }
  void operator()(const std::string& words) { out.text(words); }
  template <typename T>
  void operator()(const std::vector<T>& items) {
    out.number(static_cast<uint32_t>(items.size()));
    for (const T& item : items) fields(*this, item);
  }
};

struct Reading {
  ByteReader in;
  bool bad = false;

  void operator()(bool& value) { value = number<uint8_t>(1) != 0; }
  template <std::integral T>
  void operator()(T& value) {
    value = in.number<T>();
  }
  void operator()(Phase& value) { value = enumeration(Phase::kDone); }
  void operator()(SavePhase& value) { value = enumeration(SavePhase::kFailed); }
  void operator()(AgentDid& value) { value = enumeration(AgentDid::kKilled); }
  void operator()(Duty& value) { value = enumeration(Duty::kFinish); }
  void operator()(double& value) { value = std::bit_cast<double>(in.number<uint64_t>()); }
  void operator()(std::string& words) { words = in.text(); }
  template <typename T>
  void operator()(std::vector<T>& items) {
    items.resize(in.count(kMinBytes<T>));
    for (T& item : items) fields(*this, item);
  }

 private:
  template <typename T>
  static constexpr size_t kMinBytes = std::is_arithmetic_v<T> ? sizeof(T) : 4;

  template <typename T>
  T number(T largest) {
    const T value = in.number<T>();
    if (value < T{} || value > largest) bad = true;
    return bad ? T{} : value;
  }
  template <Enumeration T>
  T enumeration(T last) {
    return static_cast<T>(number(static_cast<std::underlying_type_t<T>>(last)));
  }
};

// T is const when writing.
template <typename Io, typename T>
void fields(Io& io, T& m) {
  using Plain = std::remove_const_t<T>;
  const auto all = [&io](auto&... members) { (io(members), ...); };
  if constexpr (std::is_arithmetic_v<Plain> || std::is_same_v<Plain, std::string>) {
    io(m);
  } else if constexpr (std::is_same_v<Plain, Peer>) {
    all(m.id, m.address);
  } else if constexpr (std::is_same_v<Plain, Progress>) {
    all(m.step, m.phase, m.save_phase, m.committed_step, m.snapshot_step, m.slot_us, m.first_step,
        m.unix_ns);
  } else if constexpr (std::is_same_v<Plain, Sample>) {
    fields(io, m.progress);
    io(m.stopped);
  } else if constexpr (std::is_same_v<Plain, WorkerExit>) {
    all(m.rank, m.exit_code, m.signal, m.hung_s, m.stopped, m.no_memory, m.agent_did, m.node_lost,
        m.log_lines);
    fields(io, m.progress);
  } else if constexpr (std::is_same_v<Plain, Report>) {
    all(m.id, m.name, m.address, m.run, m.sequence, m.follows, m.promised, m.promised_to,
        m.promised_elsewhere, m.committed, m.members_of, m.alive, m.pids, m.spawn_error,
        m.exits_from, m.exits, m.computes_wrongly, m.broken, m.health, m.samples, m.stop_signal,
        m.stops, m.alive_ns);
  } else if constexpr (std::is_same_v<Plain, Order>) {
    all(m.leader, m.sequence, m.generation, m.duty, m.first_rank, m.count, m.world_size, m.nonce,
        m.change, m.stop, m.kill, m.exits_seen, m.base, m.standbys, m.members, m.barred,
        m.safe_step, m.restarts, m.parked, m.exit_status, m.reason, m.patience.report_ns,
        m.patience.silence_ns, m.patience.ack_ns, m.patience.reap_ns);
  } else if constexpr (std::is_same_v<Plain, NotLeader>) {
    fields(io, m.follows);
  } else {
    all(m.worker, m.gone, m.bytes);
  }
}

template <size_t kKind = 0>
Result<Message> decode_kind(Reading& io, size_t kind) {
  if constexpr (kKind == std::variant_size_v<Message>) {
    return Error{Code::kCorrupt, text("received a message of unknown kind ", kind)};
  } else {
    if (kind != kKind) return decode_kind<kKind + 1>(io, kind);
    std::variant_alternative_t<kKind, Message> message;
    fields(io, message);
    if (io.bad || !io.in.finished())
      return Error{Code::kCorrupt, text("received a malformed message of kind ", kind)};
    return Message(std::move(message));
  }
}

bool is_generation(int64_t number) { return number >= -1 && number <= kMostGeneration; }

bool is_sound(const Patience& p) {
  if (p == Patience{}) return true;
  const auto all_of = {p.silence_ns, p.ack_ns, p.reap_ns};
  return p.report_ns >= 0 && p.report_ns <= kMostPatienceNs &&
         std::all_of(all_of.begin(), all_of.end(),
                     [](int64_t ns) { return ns > 0 && ns <= kMostPatienceNs; });
}

bool are_sound(const std::vector<NodeId>& members) {
  const std::unordered_set<NodeId> different(members.begin(), members.end());
  return different.size() == members.size() && !different.contains(0);
}

bool is_sound(const Report& r) {
  return r.id != 0 && is_generation(r.promised) && is_generation(r.committed) &&
         is_generation(r.members_of) && r.alive >= 0 && r.exits_from >= 0 && r.stops >= 0 &&
         r.alive_ns >= 0;
}

bool is_sound(const Order& o) {
  const auto is_count = [](int64_t number) { return number >= 0 && number <= kMostRanks; };
  const bool runs = o.duty == Duty::kRun;
  const bool ranks_fit = o.count >= 1 && o.first_rank + o.count <= o.world_size;
  return o.leader != 0 && is_generation(o.generation) && is_generation(o.base) &&
         is_count(o.first_rank) && is_count(o.count) && is_count(o.world_size) &&
         (!runs || (o.generation >= 0 && ranks_fit)) && o.exits_seen >= 0 && o.safe_step >= -1 &&
         o.restarts >= 0 && o.parked >= 0 && are_sound(o.members) && is_sound(o.patience);
}

bool is_sound(const NotLeader&) { return true; }
bool is_sound(const StoreBytes&) { return true; }

}  // namespace

bool is_sound(const Message& message) {
  return std::visit([](const auto& m) { return is_sound(m); }, message);
}

std::string encode(const Message& message) {
  Writing io;
  io(kVersion);
  io(static_cast<uint8_t>(message.index()));
  std::visit([&io](const auto& m) { fields(io, m); }, message);
  return io.out.take();
}

Result<Message> decode(std::string_view bytes) {
  Reading io{ByteReader(bytes)};
  const auto version = io.in.number<uint8_t>();
  if (version != kVersion)
    return Error{Code::kCorrupt, text("received a message of protocol version ", int{version},
                                      ", this build speaks ", int{kVersion},
                                      ": run the same build of lockstep on all nodes")};
  const auto kind = io.in.number<uint8_t>();
  LOCKSTEP_TRY(Message message, decode_kind(io, kind));
  if (!is_sound(message))
    return Error{Code::kCorrupt, text("a message of kind ", int{kind}, " with impossible numbers")};
  return message;
}

}  // namespace lockstep::launcher::control
