#include "layout/shard_layout.h"

#include "base/check.h"

namespace lockstep::layout {

std::vector<Segment> segments_of(const UnitSpec& unit, int64_t first_tile, int64_t tile_count) {
  LOCKSTEP_CHECK(first_tile >= 0 && tile_count >= 0, tile_count, " tiles from ", first_tile);
  std::vector<Segment> segments;
  const int64_t end_tile = first_tile + tile_count;
  int64_t param_tile = 0, tiles = 0;
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
      tiles += s.tiles;
      segments.push_back(s);
    }
    param_tile += param.tiles();
  }
  LOCKSTEP_CHECK(tiles == std::clamp<int64_t>(param_tile - first_tile, 0, tile_count), tiles,
                 " tiles of ", tile_count, " from ", first_tile, " on, in a unit of ", param_tile);
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
