// One rank's part of a manifest: two ranks share the tensor "w" of 3 x 4 elements.
#pragma once

#include "checkpoint/shard_file/shard_file_writer.h"
#include "tests/unit/checkpoint/world.h"

namespace lockstep::checkpoint::test_support {

inline Manifest part_of(int rank, int64_t first, int64_t length) {
  Manifest m;
  m.step = 5;
  m.generation = 2;
  m.world_size = 2;
  m.nonce = "ab";
  m.created_utc = "2026-01-01T00:00:00Z";
  m.chunking.elements = 8;
  m.trainer_state = "{\"step\":5}";
  const TensorPiece piece{"w", Kind::kParam, {3, 4}, first, length};
  m.files.push_back({shard_file_name(rank), 1000 + rank, 2, 64, hex64(1), hex64(2), {piece}});
  m.tensors.push_back({"w", {3, 4}, {{"param", hex64(static_cast<uint64_t>(10 + rank))}}});
  return m;
}

}  // namespace lockstep::checkpoint::test_support
