#include "layout/shard_layout.h"

namespace lockstep::layout {

std::vector<Segment> segments_of(const UnitSpec& unit, int64_t first_tile, int64_t tile_count) {
  std::vector<Segment> segments;
  const int64_t end_tile = first_tile + tile_count;
  int64_t param_tile = 0;
  for (size_t i = 0; i < unit.params.size(); ++i) {
    const ParamSpec& param = unit.params[i];
    const int64_t from = std::max(first_tile, param_tile);
    const int64_t to = std::min(end_tile, param_tile + param.tiles());
    if (from < to) {
      Segment s;
      s.param = static_cast<int>(i);
      s.flat_start = (from - param_tile) * kTileElements;
      s.length = std::min((to - param_tile) * kTileElements, param.elements()) - s.flat_start;
      s.range_offset = (from - first_tile) * kTileElements;
      s.tiles = to - from;
      segments.push_back(s);
    }
    param_tile += param.tiles();
  }
  return segments;
}

std::vector<int64_t> param_offsets(const UnitSpec& unit) {
  std::vector<int64_t> offsets;
  int64_t offset = 0;
  for (const ParamSpec& param : unit.params) {
    offsets.push_back(offset);
    offset += param.tiles() * kTileElements;
  }
  return offsets;
}

}  // namespace lockstep::layout
