#include "launcher/control/message.h"

#include <bit>
#include <concepts>
#include <type_traits>

#include "base/byte_codec.h"
#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

constexpr uint8_t kVersion = 6;

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
    all(m.step, m.phase, m.save_phase, m.committed_step, m.snapshot_step, m.slot_us, m.unix_ns);
  } else if constexpr (std::is_same_v<Plain, Sample>) {
    fields(io, m.progress);
    io(m.stopped);
  } else if constexpr (std::is_same_v<Plain, WorkerExit>) {
    all(m.rank, m.exit_code, m.signal, m.hung_s, m.stopped, m.no_memory, m.node_lost, m.log_lines);
    fields(io, m.progress);
  } else if constexpr (std::is_same_v<Plain, Report>) {
    all(m.id, m.name, m.address, m.run, m.sequence, m.follows, m.promised, m.promised_to,
        m.promised_elsewhere, m.committed, m.members_of, m.alive, m.pids, m.spawn_error,
        m.exits_from, m.exits, m.computes_wrongly, m.broken, m.health, m.samples, m.stop_signal,
        m.stops, m.alive_ns);
  } else if constexpr (std::is_same_v<Plain, Order>) {
    all(m.leader, m.sequence, m.generation, m.duty, m.first_rank, m.count, m.world_size, m.nonce,
        m.stop, m.kill, m.exits_seen, m.base, m.standbys, m.members, m.barred, m.safe_step,
        m.restarts, m.parked, m.exit_status, m.reason, m.patience.report_ns, m.patience.silence_ns,
        m.patience.ack_ns, m.patience.reap_ns);
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

}  // namespace

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
  return decode_kind(io, kind);
}

}  // namespace lockstep::launcher::control
