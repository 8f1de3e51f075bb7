#include "layout/shard_layout.h"

namespace lockstep::core {

std::vector<Segment> segments_of(const layout::UnitSpec& unit, int64_t first_tile,
                                 int64_t tile_count) {
  constexpr int64_t kTile = layout::kTileElements;
  std::vector<Segment> segments;
  const int64_t end_tile = first_tile + tile_count;
  int64_t param_tile = 0;
  for (size_t i = 0; i < unit.params.size(); ++i) {
    const layout::ParamSpec& param = unit.params[i];
    const int64_t from = std::max(first_tile, param_tile);
    const int64_t to = std::min(end_tile, param_tile + param.tiles());
    if (from < to) {
      Segment s;
      s.param = static_cast<int>(i);
      s.flat_start = (from - param_tile) * kTile;
      s.length = std::min((to - param_tile) * kTile, param.elements()) - s.flat_start;
      s.range_offset = (from - first_tile) * kTile;
      s.tiles = to - from;
      segments.push_back(s);
    }
    param_tile += param.tiles();
  }
  return segments;
}

}  // namespace lockstep::core
