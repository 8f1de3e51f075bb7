#include "core/kernels/digest_kernels.h"

#include <algorithm>

#include "base/hash.h"
#include "layout/model_spec.h"

namespace lockstep::core {

uint64_t digest_of_tiles(std::span<const std::byte> elements, size_t element_bytes, uint64_t seed) {
  const size_t tile_bytes = layout::kTileElements * element_bytes;
  uint64_t sum = 0;
  for (size_t at = 0; at < elements.size(); at += tile_bytes)
    sum += xxh3_64(elements.subspan(at, std::min(tile_bytes, elements.size() - at)),
                   seed + at / element_bytes);
  return sum;
}

}  // namespace lockstep::core
