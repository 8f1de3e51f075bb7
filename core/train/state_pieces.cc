#include "core/train/state_pieces.h"

namespace lockstep::core {
namespace {

using checkpoint::Kind;

struct StateTensor {
  Kind kind;
  at::Tensor tensor_S;
};

std::vector<StateTensor> state_tensors(Unit& unit, bool weights_only) {
  const ShardState::HostState& state = unit.state.host();
  if (weights_only) return {{Kind::kParam, state.master_S}};
  return {{Kind::kParam, state.master_S},
          {Kind::kAdamM, state.adam_m_S},
          {Kind::kAdamV, state.adam_v_S}};
}

// Calls f(piece, first byte, byte count) for each segment of each state tensor, `offset` elements
// in. Nothing for a frozen unit: its weights come from where the run took them.
template <typename F>
void for_each_piece(Unit& unit, const std::vector<Segment>& segments, int64_t offset,
                    bool weights_only, F&& f) {
  if (unit.spec.frozen) return;
  for (const StateTensor& state : state_tensors(unit, weights_only))
    for (const Segment& s : segments) {
      const layout::ParamSpec& param = unit.spec.params[static_cast<size_t>(s.param)];
      float* first = state.tensor_S.data_ptr<float>() + offset + s.range_offset;
      f(checkpoint::TensorPiece{param.name, state.kind, param.shape, s.flat_start, s.length},
        reinterpret_cast<std::byte*>(first), static_cast<size_t>(s.length) * sizeof(float));
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
    for (const layout::ParamSpec& param : unit->spec.params)
      for (const Kind kind : {Kind::kParam, Kind::kAdamM, Kind::kAdamV})
        pieces.push_back(
            {param.name, kind, param.shape, 0, checkpoint::element_count(param.shape)});
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
