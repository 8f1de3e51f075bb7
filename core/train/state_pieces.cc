#include "core/train/state_pieces.h"

namespace lockstep::core {
namespace {

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

// Where the held element `at` of a parameter lies on the host.
float* address(Unit& unit, int param, Kind kind, int64_t at) {
  const ShardState::HostState& state = unit.state.host();
  switch (kind) {
    case Kind::kParam: return state.master_S.data_ptr<float>() + at;
    case Kind::kAdamM:
    case Kind::kMomentum: return state.adam_m_S.data_ptr<float>() + at;
    case Kind::kAdamV: return state.adam_v_A.data_ptr<float>() + unit.state.place_in_v(param, at);
  }
  return nullptr;
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
      float* first = address(unit, s.param, kind, offset + s.range_offset);
      f(checkpoint::TensorPiece{param.name, kind, param.shape, s.flat_start, s.length},
        reinterpret_cast<std::byte*>(first), static_cast<size_t>(s.length) * sizeof(float));
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
          pieces.push_back(
              {param.name, kind, param.shape, 0, checkpoint::element_count(param.shape)});
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
