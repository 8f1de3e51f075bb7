#include "core/train/state_pieces.h"

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

// Where the held element `at` of a parameter lies on the host.
std::byte* address(Unit& unit, int param, Kind kind, int64_t at) {
  const ShardState::HostState& state = unit.state.host();
  const at::Tensor& kept = kind == Kind::kParam   ? state.master_S
                           : kind == Kind::kAdamV ? state.adam_v_A
                                                  : state.adam_m_S;
  const int64_t place = kind == Kind::kAdamV ? unit.state.place_in_v(param, at) : at;
  return static_cast<std::byte*>(kept.data_ptr()) + place * kept.element_size();
}

// Calls f(piece, first byte, byte count) for each segment of each kind of state, `offset` elements
// in. Nothing for a frozen unit: its weights come from where the run took them.
template <typename F>
void for_each_piece(Unit& unit, const std::vector<Segment>& segments, int64_t offset,
                    bool weights_only, F&& f) {
  if (unit.spec.frozen) return;
  for (const Kind kind : checkpoint::kAllKinds) {
    if (weights_only && kind != Kind::kParam) break;
    for (const Segment& s : segments) {
      if (!has_kind(unit, s.param, kind)) continue;
      const layout::ParamSpec& param = unit.spec.params[static_cast<size_t>(s.param)];
      const checkpoint::TensorPiece piece{param.name,   kind,     param.shape,
                                          s.flat_start, s.length, dtype_of(unit, kind)};
      f(piece, address(unit, s.param, kind, offset + s.range_offset),
        static_cast<size_t>(piece.size_bytes()));
    }
  }
}

}  // namespace

std::vector<checkpoint::LivePiece> owned_pieces(std::vector<std::unique_ptr<Unit>>& units) {
  std::vector<checkpoint::LivePiece> pieces;
  for (auto& unit : units)
    for_each_piece(*unit, unit->state.owned_segments(), unit->state.owned_offset(), false,
                   [&](checkpoint::TensorPiece piece, std::byte* bytes, size_t count) {
                     pieces.push_back({std::move(piece), {bytes, count}});
                   });
  return pieces;
}

std::vector<checkpoint::LiveTarget> held_targets(std::vector<std::unique_ptr<Unit>>& units,
                                                 bool weights_only) {
  std::vector<checkpoint::LiveTarget> targets;
  for (auto& unit : units)
    for_each_piece(*unit, unit->state.held_segments(), 0, weights_only,
                   [&](checkpoint::TensorPiece piece, std::byte* bytes, size_t count) {
                     targets.push_back({std::move(piece), {bytes, count}});
                   });
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
