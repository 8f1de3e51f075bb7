// Muon on many ranks. Its update of a matrix needs the whole matrix: which ones these are, on which
// rank each is orthogonalized (its home), and what travels for that. Pure: a function of shapes and
// of the number of ranks alone. Optimizer (core/optim) carries it out; the plans of memory and time
// ask it as well.
//
// 1. A block's matrices of attention and feed-forward are Muon's, an expert's each by itself. All
//    else is AdamW's: embeddings, head, router, norms, biases.
// 2. Units go through an update in waves. A wave is the shortest run of units that has
//    kMatricesOfRank matrices for each rank: work spreads evenly, and buffers stay small. All ranks
//    of the job share the work, whichever of them hold the same state.
// 3. In a wave the matrix with the most work goes to the rank that has least, and so on.
// 4. A rank sends of each matrix what it owns, without padding, as bf16: to home 0 all of its, to
//    home 1, …; of one home in the order of the matrices. Home receives from rank 0, 1, … in the
//    same order. The update travels back the same way, through the same places.
//
//   W = 2; matrices a and b of a wave, home of a: 0, of b: 1
//     rank 0 owns [a0 b0]    sends a0 | b0    receives a0 | a1
//     rank 1 owns [a1 b1]    sends a1 | b1    receives b0 | b1
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layout/shard_layout.h"

namespace lockstep::layout {

inline constexpr int64_t kMatricesOfRank = 4;
inline constexpr int64_t kNewtonSchulzSteps = 5;

// Rule 1.
bool is_muons(const ParamSpec& param);
// Elements of those segments whose parameters are Muon's, whole tiles.
int64_t muon_elements(const UnitSpec& unit, const std::vector<Segment>& segments);

struct MuonMatrix {
  size_t unit = 0;  // counts the units of the update
  int param = 0;
  int64_t rows = 0, cols = 0;
  int home = 0;
  int64_t elements() const { return rows * cols; }
  int64_t short_side() const { return std::min(rows, cols); }
  // Of the Newton-Schulz iteration.
  double flops() const;
};

// A run of one matrix's elements and where it lies in a buffer.
struct MuonPiece {
  size_t matrix = 0;  // of the wave
  int64_t flat_start = 0, length = 0, offset = 0;
};
// What one rank has in a buffer: rule 4.
struct MuonPieces {
  std::vector<MuonPiece> pieces;
  std::vector<int64_t> counts;  // elements, by the rank that they go to and come from
  int64_t elements() const;
};

struct MuonWave {
  size_t first_unit = 0, end_unit = 0;
  std::vector<MuonMatrix> matrices;  // in model order
  MuonPieces own;                    // what this rank owns, by home
  MuonPieces at_home;                // what it orthogonalizes, by owner
  bool has_matrices_of(size_t unit) const;
};

struct MuonUnit {
  const UnitSpec* spec;
  ShardLayout layout;
};
// The waves of an update of `units` as `rank` sees them. Without `muon` every unit is one, and has
// no matrices. Requires: all layouts are of the same ranks.
std::vector<MuonWave> muon_waves(const std::vector<MuonUnit>& units, bool muon, int rank);

}  // namespace lockstep::layout
