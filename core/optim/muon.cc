#include "core/optim/muon.h"

#include <algorithm>

#include "base/text.h"
#include "core/device/devices.h"
#include "core/kernels/kernel_table.h"
#include "core/optim/newton_schulz.h"

namespace lockstep::core {
namespace {

at::BFloat16* elements(const at::Tensor& t) { return t.data_ptr<at::BFloat16>(); }

std::vector<layout::MuonWave> waves_of(const std::vector<Unit*>& units, const Strategy& strategy,
                                       int rank) {
  std::vector<layout::MuonUnit> shapes;
  for (const Unit* unit : units) shapes.push_back({&unit->spec, unit->layout});
  return layout::muon_waves(shapes, strategy.muon, rank);
}

}  // namespace

Muon::Muon(std::vector<Unit*> units, const Strategy& strategy, const Groups& groups,
           BufferPool& pool)
    : units_(std::move(units)),
      strategy_(strategy),
      groups_(groups),
      pool_(pool),
      waves_(waves_of(units_, strategy, groups.world->rank())) {
  for (const Unit* unit : units_) own_.emplace_back(unit->spec.params.size());
  for (const layout::MuonWave& wave : waves_)
    for (const layout::MuonPiece& piece : wave.own.pieces) {
      const layout::MuonMatrix& matrix = wave.matrices[piece.matrix];
      const ShardState& state = units_[matrix.unit]->state;
      for (const Segment& s : state.owned_segments()) {
        if (s.param != matrix.param) continue;
        const int64_t at = state.owned_offset() + s.range_offset;
        own_[matrix.unit][static_cast<size_t>(s.param)] = {piece.offset, at, at + s.length};
      }
    }
}

MuonStep Muon::step_of(size_t unit, int param) const {
  const std::vector<int64_t>& shape = units_[unit]->spec.params[static_cast<size_t>(param)].shape;
  return MuonStep::create(rate_.lr, rate_.momentum, rate_.weight_decay, rate_.clip, shape[0],
                          shape[1]);
}

// A rank that owns nothing of a wave sends nothing, from somewhere.
at::Tensor Muon::room(int64_t n) {
  return pool_.take_tensor(std::max<int64_t>(n, 1), at::kBFloat16).narrow(0, 0, n);
}

void Muon::begin(const layout::MuonWave& wave, const MuonRate& rate) {
  wave_ = &wave;
  rate_ = rate;
  if (is_empty()) return;
  sent_ = room(wave.own.elements());
  staged_ = strategy_.state_device() == strategy_.device
                ? sent_
                : device_of(strategy_.device).host_tensor({sent_.numel()}, at::kBFloat16);
}

void Muon::take_gradient(size_t unit, int param, int64_t at, const float* grad, int64_t n) {
  const Own& mine = own(unit, param);
  const int64_t begin = std::clamp(mine.at, at, at + n), end = std::clamp(mine.end, begin, at + n);
  ShardState& state = units_[unit]->state;
  const MuonStep step = step_of(unit, param);
  const auto run = [&](int64_t from, int64_t to, at::BFloat16* out) {
    if (from < to)
      kernels_on(state.adam_m_S)
          .muon_momentum(step, grad + (from - at), state.adam_m_S.data_ptr<float>() + from, out,
                         to - from);
  };
  run(at, begin, nullptr);
  run(begin, end, elements(staged_) + mine.offset + (begin - mine.at));
  run(end, at + n, nullptr);
}

// Rule 4.
Result<void> Muon::exchange() {
  if (is_empty()) return {};
  const layout::MuonPieces &own = wave_->own, &at_home = wave_->at_home;
  const bool staged = !staged_.is_same(sent_);
  if (staged) sent_.copy_(staged_);
  at::Tensor home = room(at_home.elements());
  Communicator& world = *groups_.world;
  if (auto done = world.all_to_all(home, at_home.counts, sent_, own.counts)->wait(); !done.ok())
    return done.error().in("sending Muon's matrices to where they are orthogonalized");
  orthogonalize_home(home);
  if (auto done = world.all_to_all(sent_, own.counts, home, at_home.counts)->wait(); !done.ok())
    return done.error().in("sending Muon's updates back");
  pool_.give_tensor(home);
  if (staged) staged_.copy_(sent_);
  return {};
}

// The pieces of a matrix lie apart, as their owners sent them.
void Muon::orthogonalize_home(const at::Tensor& home) {
  std::vector<std::vector<layout::MuonPiece>> pieces(wave_->matrices.size());
  for (const layout::MuonPiece& piece : wave_->at_home.pieces)
    pieces[piece.matrix].push_back(piece);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].empty()) continue;
    const layout::MuonMatrix& matrix = wave_->matrices[i];
    at::Tensor x = pool_.take_tensor(matrix.elements(), at::kBFloat16);
    for (const layout::MuonPiece& p : pieces[i])
      x.narrow(0, p.flat_start, p.length).copy_(home.narrow(0, p.offset, p.length));
    orthogonalize(x.view({matrix.rows, matrix.cols}), pool_);
    for (const layout::MuonPiece& p : pieces[i])
      home.narrow(0, p.offset, p.length).copy_(x.narrow(0, p.flat_start, p.length));
    pool_.give_tensor(x);
  }
}

// What the copies of this rank's state own of the unit's update, together what it holds.
Result<at::Tensor> Muon::whole_update(size_t unit) {
  const Unit& u = *units_[unit];
  at::Tensor part = pool_.take_tensor(u.layout.owned_elements(), at::kBFloat16);
  at::Tensor whole = pool_.take_tensor(u.layout.held_elements(), at::kBFloat16);
  for (const Segment& s : u.state.owned_segments())
    if (u.state.is_muons(s.param))
      part.narrow(0, s.range_offset, s.length)
          .copy_(sent_.narrow(0, own(unit, s.param).offset, s.length));
  const auto done = groups_.copies->all_gather(whole, part, Traffic::kExchange)->wait();
  if (!done.ok()) return done.error().in(text("gathering Muon's update of ", u.spec.name));
  pool_.give_tensor(part);
  return whole;
}

Result<void> Muon::apply(size_t unit) {
  if (!wave_->has_matrices_of(unit)) return {};
  ShardState& state = units_[unit]->state;
  const bool shared = groups_.copies->world_size() > 1;
  at::Tensor gathered;
  if (shared) {
    LOCKSTEP_TRY(gathered, whole_update(unit));
  }
  const at::Tensor whole = shared ? gathered.to(strategy_.state_device()) : at::Tensor();
  for (const Segment& s : state.held_segments()) {
    if (!state.is_muons(s.param)) continue;
    const at::BFloat16* const update =
        shared ? elements(whole) + s.range_offset : elements(staged_) + own(unit, s.param).offset;
    kernels_on(state.master_S)
        .muon_update(step_of(unit, s.param), update,
                     state.master_S.data_ptr<float>() + s.range_offset,
                     state.copy_beside(s.range_offset), s.length);
  }
  pool_.give_tensor(gathered);
  return {};
}

void Muon::end() {
  staged_.reset();
  pool_.give_tensor(sent_);
}

}  // namespace lockstep::core
