#include "core/train/state_pieces.h"

#include "core/device/block_copies.h"
#include "core/device/devices.h"

namespace lockstep::core {
namespace {

using checkpoint::Dtype;
using checkpoint::Kind;

bool has_kind(const Unit& unit, int param, Kind kind) {
  switch (kind) {
    case Kind::kParam: return true;
    case Kind::kAdamM:
    case Kind::kAdamV: return !unit.state.is_muons(param);
    case Kind::kMomentum: return unit.state.is_muons(param);
  }
  return false;
}

Dtype dtype_of(const at::Tensor& kept) {
  return kept.scalar_type() == at::kBFloat16 ? Dtype::kBf16 : Dtype::kF32;
}

// Of a unit that is trained: what its elements of a kind are kept in.
Dtype dtype_of(const Unit& unit, Kind kind) {
  return dtype_of(kind == Kind::kParam ? unit.state.master_S : unit.state.adam_m_S);
}

// Where the held element `at` of a parameter lies; `state`: the unit's, or its copy on the host.
template <typename State>
std::byte* address(const Unit& unit, const State& state, int param, Kind kind, int64_t at) {
  const at::Tensor& kept = kind == Kind::kParam   ? state.master_S
                           : kind == Kind::kAdamV ? state.adam_v_A
                                                  : state.adam_m_S;
  const int64_t place = kind == Kind::kAdamV ? unit.state.place_in_v(param, at) : at;
  return static_cast<std::byte*>(kept.data_ptr()) + place * kept.element_size();
}

// Calls f(piece, first byte, byte count) for each segment of each kind of `state`, `offset`
// elements in. Requires: no frozen unit; its weights come from where the run took them.
template <typename State, typename F>
void for_each_piece(const Unit& unit, const State& state, const std::vector<Segment>& segments,
                    int64_t offset, bool weights_only, F&& f) {
  for (const Kind kind : checkpoint::kAllKinds) {
    if (weights_only && kind != Kind::kParam) break;
    for (const Segment& s : segments) {
      if (!has_kind(unit, s.param, kind)) continue;
      const layout::ParamSpec& param = unit.spec.params[static_cast<size_t>(s.param)];
      const checkpoint::TensorPiece piece{param.name,   kind,     param.shape,
                                          s.flat_start, s.length, dtype_of(unit, kind)};
      f(piece, address(unit, state, s.param, kind, offset + s.range_offset),
        static_cast<size_t>(piece.size_bytes()));
    }
  }
}

std::vector<checkpoint::LivePiece> owned_pieces(const std::vector<std::unique_ptr<Unit>>& units) {
  std::vector<checkpoint::LivePiece> pieces;
  for (const auto& unit : units) {
    if (unit->spec.frozen) continue;
    const ShardState& state = unit->state;
    for_each_piece(*unit, state, state.owned_segments(), state.owned_offset(), false,
                   [&](checkpoint::TensorPiece piece, std::byte* bytes, size_t count) {
                     pieces.push_back({std::move(piece), {bytes, count}});
                   });
  }
  return pieces;
}

class StateOnHost final : public LiveState {
 public:
  explicit StateOnHost(std::vector<checkpoint::LivePiece> pieces) : state_(std::move(pieces)) {}
  std::span<const checkpoint::LivePiece> layout() const override { return state_.layout(); }
  Result<void> read(const Reading& reading) override { return state_.read(reading); }
  void freeze() override {}
  void thaw() override {}

 private:
  checkpoint::HostState state_;
};

std::vector<std::span<const std::byte>> bytes_of(const std::vector<checkpoint::LivePiece>& pieces) {
  std::vector<std::span<const std::byte>> ranges;
  for (const checkpoint::LivePiece& piece : pieces) ranges.push_back(piece.bytes);
  return ranges;
}

static_assert(BlockCopies::kBuffers == layout::kSaveBuffers, "the plan counts others");

class StateOnDevice final : public LiveState {
 public:
  StateOnDevice(const Device& device, std::vector<checkpoint::LivePiece> pieces,
                int64_t buffer_bytes)
      : pieces_(std::move(pieces)),
        copies_(device, bytes_of(pieces_), static_cast<size_t>(buffer_bytes)) {}
  std::span<const checkpoint::LivePiece> layout() const override { return pieces_; }
  Result<void> read(const Reading& reading) override {
    return copies_.read(
        [&](const BlockCopies::Part& part) {
          const Part here{part.range, part.offset, part.bytes};
          if (reading.look) reading.look(here);
          return reading.take(here);
        },
        [&] {
          if (reading.may_change) reading.may_change();
        });
  }
  void freeze() override { copies_.freeze(); }
  void thaw() override { copies_.thaw(); }

 private:
  const std::vector<checkpoint::LivePiece> pieces_;
  BlockCopies copies_;
};

}  // namespace

std::unique_ptr<LiveState> LiveState::of(const std::vector<std::unique_ptr<Unit>>& units,
                                         int64_t buffer_bytes) {
  auto pieces = owned_pieces(units);
  for (const auto& unit : units) {
    if (unit->spec.frozen || unit->state.master_S.is_cpu()) continue;
    const Device& device = device_of(unit->state.master_S.device());
    return std::make_unique<StateOnDevice>(device, std::move(pieces), buffer_bytes);
  }
  return std::make_unique<StateOnHost>(std::move(pieces));
}

std::vector<checkpoint::LiveTarget> owned_targets(std::vector<std::unique_ptr<Unit>>& units,
                                                  bool weights_only) {
  std::vector<checkpoint::LiveTarget> targets;
  for (auto& unit : units) {
    if (unit->spec.frozen) continue;
    ShardState& state = unit->state;
    for_each_piece(*unit, state.host(), state.owned_segments(), state.owned_offset(), weights_only,
                   [&](checkpoint::TensorPiece piece, std::byte* bytes, size_t count) {
                     targets.push_back({std::move(piece), {bytes, count}});
                   });
  }
  return targets;
}

std::vector<checkpoint::TensorPiece> model_pieces(const std::vector<std::unique_ptr<Unit>>& units) {
  std::vector<checkpoint::TensorPiece> pieces;
  for (const auto& unit : units) {
    if (unit->spec.frozen) continue;
    for (size_t i = 0; i < unit->spec.params.size(); ++i) {
      const layout::ParamSpec& param = unit->spec.params[i];
      for (const Kind kind : checkpoint::kAllKinds)
        if (has_kind(*unit, static_cast<int>(i), kind))
          pieces.push_back({param.name, kind, param.shape, 0,
                            checkpoint::element_count(param.shape), dtype_of(*unit, kind)});
    }
  }
  return pieces;
}

std::set<std::string> parameter_names(const std::vector<std::unique_ptr<Unit>>& units) {
  std::set<std::string> names;
  for (const auto& unit : units) {
    if (unit->spec.frozen) continue;
    for (const layout::ParamSpec& param : unit->spec.params) names.insert(param.name);
  }
  return names;
}

}  // namespace lockstep::core
