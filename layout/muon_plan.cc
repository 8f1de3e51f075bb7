#include "layout/muon_plan.h"
#include "base/check.h"

#include <algorithm>
#include <numeric>

namespace lockstep::layout {
namespace {

// Rule 3. Ties go to the first matrix, and to the lowest rank.
void choose_homes(std::vector<MuonMatrix>& matrices, int world_size) {
  std::vector<size_t> order(matrices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return matrices[a].flops() > matrices[b].flops(); });
  std::vector<double> work(static_cast<size_t>(world_size), 0.0);
  for (const size_t m : order) {
    const auto least = std::min_element(work.begin(), work.end());
    matrices[m].home = static_cast<int>(least - work.begin());
    *least += matrices[m].flops();
  }
}

// What `owner` owns of the wave's matrices, in their order.
std::vector<MuonPiece> owned_by(int owner, const MuonWave& wave,
                                const std::vector<MuonUnit>& units) {
  std::vector<MuonPiece> owned;
  size_t matrix = 0;
  for (size_t u = wave.first_unit; u < wave.end_unit; ++u) {
    const ShardLayout& layout = units[u].layout;
    for (const Segment& s :
         segments_of(*units[u].spec, layout.first_tile(owner), layout.tile_count(owner))) {
      const auto comes_before = [&](const MuonMatrix& m) {
        return m.unit < u || (m.unit == u && m.param < s.param);
      };
      while (matrix < wave.matrices.size() && comes_before(wave.matrices[matrix])) ++matrix;
      if (matrix == wave.matrices.size()) return owned;
      const MuonMatrix& m = wave.matrices[matrix];
      if (m.unit == u && m.param == s.param) owned.push_back({matrix, s.flat_start, s.length});
    }
  }
  return owned;
}

void append(MuonPiece piece, size_t peer, MuonPieces& to) {
  piece.offset = to.elements();
  to.counts[peer] += piece.length;
  to.pieces.push_back(piece);
}

// Rule 4.
void lay_out(MuonWave& wave, const std::vector<MuonUnit>& units, int rank, int world_size) {
  const size_t ranks = static_cast<size_t>(world_size);
  wave.own.counts.assign(ranks, 0);
  wave.at_home.counts.assign(ranks, 0);
  const std::vector<MuonPiece> mine = owned_by(rank, wave, units);
  for (int peer = 0; peer < world_size; ++peer) {
    const size_t place = static_cast<size_t>(peer);
    for (const MuonPiece& piece : mine)
      if (wave.matrices[piece.matrix].home == peer) append(piece, place, wave.own);
    for (const MuonPiece& piece : owned_by(peer, wave, units))
      if (wave.matrices[piece.matrix].home == rank) append(piece, place, wave.at_home);
  }
  int64_t home = 0, own = 0;  // elements
  for (const MuonMatrix& matrix : wave.matrices)
    if (matrix.home == rank) home += matrix.elements();
  for (const MuonPiece& piece : mine) own += piece.length;
  LOCKSTEP_CHECK(wave.at_home.elements() == home && wave.own.elements() == own, "rank ", rank,
                 " gets ", wave.at_home.elements(), " elements of ", home, " and sends ",
                 wave.own.elements(), " of ", own);
}

}  // namespace

bool is_muons(const ParamSpec& param) {
  switch (param.role) {
    case Role::kQ:
    case Role::kK:
    case Role::kV:
    case Role::kO:
    case Role::kGate:
    case Role::kUp:
    case Role::kDown: return true;
    default: return false;
  }
}

int64_t muon_elements(const UnitSpec& unit, const std::vector<Segment>& segments) {
  int64_t tiles = 0;
  for (const Segment& s : segments)
    if (is_muons(unit.params[static_cast<size_t>(s.param)])) tiles += s.tiles;
  return tiles * kTileElements;
}

// An iteration is x x^T, its square, and that times x.
double MuonMatrix::flops() const {
  const double side = static_cast<double>(short_side()), all = static_cast<double>(elements());
  return kNewtonSchulzSteps * (4 * all * side + 2 * side * side * side);
}

int64_t MuonPieces::elements() const {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

bool MuonWave::has_matrices_of(size_t unit) const {
  return std::any_of(matrices.begin(), matrices.end(),
                     [&](const MuonMatrix& matrix) { return matrix.unit == unit; });
}

std::vector<MuonWave> muon_waves(const std::vector<MuonUnit>& units, bool muon, int rank) {
  std::vector<MuonWave> waves;
  for (size_t u = 0; u < units.size(); ++u) {
    const int world_size = units[u].layout.world_size;
    const auto enough = [&](const MuonWave& wave) {
      return !muon || std::ssize(wave.matrices) >= kMatricesOfRank * world_size;
    };
    if (waves.empty() || enough(waves.back())) waves.push_back({u, u, {}, {}, {}});
    MuonWave& wave = waves.back();
    wave.end_unit = u + 1;
    const std::vector<ParamSpec>& params = units[u].spec->params;
    for (size_t p = 0; muon && p < params.size(); ++p)
      if (is_muons(params[p]))
        wave.matrices.push_back(
            {u, static_cast<int>(p), params[p].shape[0], params[p].shape[1], 0});
    if (u + 1 < units.size() && !enough(wave)) continue;
    LOCKSTEP_CHECK(rank >= 0 && rank < world_size && world_size == units[0].layout.world_size,
                   "rank ", rank, " of ", world_size, " and of ", units[0].layout.world_size);
    choose_homes(wave.matrices, world_size);
    lay_out(wave, units, rank, world_size);
  }
  return waves;
}

}  // namespace lockstep::layout
