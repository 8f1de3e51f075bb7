#include "core/sharding/state_audit.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <algorithm>
#include <numeric>

#include "base/hash.h"
#include "base/text.h"
#include "core/comm/gather_words.h"
#include "core/kernels/kernel_table.h"

namespace lockstep::core {
namespace {

using layout::kTileElements;

// Of a segment whose elements begin at the `first`-th of a tensor.
DigestRun run_of(const Segment& s, int64_t first) {
  return {first, s.length,
          mix64(static_cast<uint64_t>(s.param)) + static_cast<uint64_t>(s.flat_start)};
}

uint64_t fingerprint(const at::Tensor& tensor, const std::vector<DigestRun>& runs) {
  const std::vector<uint64_t> sums = digests_of(tensor, runs);
  return std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

// `sent`: by member, words for it. By member, those that it had for this one. Collective.
Result<std::vector<std::vector<uint64_t>>> swap_words(
    Communicator& group, const std::vector<std::vector<uint64_t>>& sent) {
  const int64_t words = std::ssize(sent.front());
  const std::vector<int64_t> counts(sent.size(), words);
  const at::Tensor in = at::empty({std::ssize(sent), words}, at::kLong);
  const at::Tensor out = at::empty_like(in);
  int64_t* next = in.data_ptr<int64_t>();
  for (const auto& row : sent) next = std::copy(row.begin(), row.end(), next);
  LOCKSTEP_RETURN_IF_ERROR(group.all_to_all(out.view(-1), counts, in.view(-1), counts)->wait());
  std::vector<std::vector<uint64_t>> came;
  for (const int64_t* row = out.const_data_ptr<int64_t>(); came.size() < sent.size(); row += words)
    came.emplace_back(row, row + words);
  return came;
}

}  // namespace

std::vector<uint64_t> fingerprints_of_received(const Unit& unit, int rank) {
  const ShardLayout& layout = unit.layout;
  const at::Tensor whole = unit.params.arrived();
  const int sharing = layout.sizes.shard, first_rank = rank / sharing * sharing;
  std::vector<DigestRun> runs;
  std::vector<size_t> part_of_run;
  for (int part = 0; part < sharing; ++part) {
    const int from = first_rank + part;
    const int64_t first = layout.first_held_tile(from);
    for (const Segment& s : segments_of(unit.spec, first, layout.held_tile_count(from))) {
      runs.push_back(run_of(s, first * kTileElements + s.range_offset));
      part_of_run.push_back(static_cast<size_t>(part));
    }
  }
  const std::vector<uint64_t> sums = digests_of(whole, runs);  // one wait for the device
  std::vector<uint64_t> parts(static_cast<size_t>(sharing));
  for (size_t i = 0; i < sums.size(); ++i) parts[part_of_run[i]] += sums[i];
  return parts;
}

StateAudit::StateAudit(const std::vector<std::unique_ptr<Unit>>& units, const Groups& groups)
    : units_(units), groups_(groups), noted_(units.size()) {}

// By StateTensor.
std::vector<uint64_t> StateAudit::fingerprints(const Unit& unit) const {
  const ShardState& state = unit.state;
  const at::Tensor tensors[] = {state.master_S, state.adam_m_S, state.adam_v_A, state.compute_S()};
  std::vector<uint64_t> sums(kStateTensors);
  for (size_t t = 0; t < kStateTensors; ++t) {
    const bool second_moment = static_cast<StateTensor>(t) == StateTensor::kSecondMoment;
    const bool gathered = static_cast<StateTensor>(t) == StateTensor::kGathered;
    if (gathered && tensors[t].is_same(tensors[0])) {
      sums[t] = sums[0];
      continue;
    }
    if (!tensors[t].defined()) continue;
    std::vector<DigestRun> runs;
    for (const Segment& s : state.held_segments()) {
      if (second_moment && state.is_muons(s.param)) continue;
      const int64_t at = s.range_offset;
      runs.push_back(run_of(s, second_moment ? state.place_in_v(s.param, at) : at));
    }
    sums[t] = fingerprint(tensors[t], runs);
  }
  return sums;
}

void StateAudit::note() {
  for (size_t u = 0; u < units_.size(); ++u)
    if (noted_[u].empty()) noted_[u] = fingerprints(*units_[u]);
}

void StateAudit::forget() {
  for (size_t u = 0; u < units_.size(); ++u)
    if (!units_[u]->spec.frozen) noted_[u].clear();
}

Result<StepAudit> StateAudit::run(const std::vector<ReceivedUnit>& received) const {
  std::vector<uint64_t> now;
  for (const auto& unit : units_)
    for (const uint64_t one : fingerprints(*unit)) now.push_back(one);
  StateReport mine = changed(now);
  const bool mine_changed = mine.fault != StateFault::kNone;
  LOCKSTEP_TRY(const StateReport copies, compare_copies(now, mine_changed));
  LOCKSTEP_TRY(const StateReport wire, compare_received(now, mine_changed, received));
  LOCKSTEP_TRY(const StateReport exchanged, compare_exchanged());
  for (const StateReport& other : {copies, wire, exchanged})
    if (mine.fault == StateFault::kNone) mine = other;
  const auto all = gather_words(
      *groups_.world, {static_cast<uint64_t>(mine.fault), mine.unit,
                       static_cast<uint64_t>(mine.tensor), static_cast<uint64_t>(mine.source)});
  if (!all.ok()) return all.error().in("sharing what an audit of the state found");
  std::vector<StateReport> reports;
  for (size_t at = 0; at < all.value().size(); at += 4) {
    const uint64_t* const words = all.value().data() + at;
    reports.push_back({static_cast<StateFault>(words[0]), words[1],
                       static_cast<StateTensor>(words[2]), static_cast<int>(words[3])});
  }
  std::vector<std::string> names;
  for (const auto& unit : units_) names.push_back(unit->spec.name);
  const int group = units_.front()->layout.sizes.group;
  return StepAudit{judge_state(reports, group), 0, state_difference(reports, group, names),
                   /*of_state=*/true, may_explain_slots(reports)};
}

// Rule 1.
StateReport StateAudit::changed(const std::vector<uint64_t>& now) const {
  for (size_t at = 0; at < now.size(); ++at) {
    const std::vector<uint64_t>& noted = noted_[at / kStateTensors];
    if (!noted.empty() && noted[at % kStateTensors] != now[at])
      return report_at(StateFault::kMemory, at);
  }
  return {};
}

// Rule 2, among the ranks that hold the same. Collective.
Result<StateReport> StateAudit::compare_copies(const std::vector<uint64_t>& now,
                                               bool mine_changed) const {
  Gatherer& copies = *groups_.copies;
  if (copies.world_size() == 1) return StateReport{};
  std::vector<uint64_t> words = now;
  words.push_back(mine_changed ? 1 : 0);
  const auto all = gather_words(copies, words);
  if (!all.ok()) return all.error().in("comparing the copies of the state");
  std::vector<std::vector<AuditAnswer>> answers(now.size());
  for (int rank = 0; rank < copies.world_size(); ++rank) {
    const uint64_t* const row = all.value().data() + rank * std::ssize(words);
    if (row[now.size()] != 0) continue;
    for (size_t at = 0; at < now.size(); ++at) answers[at].push_back({rank, row[at]});
  }
  return report_of_copies(copies.rank(), answers, copies.world_size());
}

// Rule 3, among the ranks that share one copy. Collective.
Result<StateReport> StateAudit::compare_received(const std::vector<uint64_t>& now,
                                                 bool mine_changed,
                                                 const std::vector<ReceivedUnit>& received) const {
  Gatherer& sharing = *groups_.shard;
  if (sharing.world_size() == 1) return StateReport{};
  const int rank = groups_.world->rank(),
            first_rank = rank / sharing.world_size() * sharing.world_size();
  std::vector<uint64_t> words{static_cast<uint64_t>(rank - first_rank), mine_changed ? 1u : 0u};
  for (size_t u = 0; u < units_.size(); ++u)
    words.push_back(now[state_place(u, StateTensor::kGathered)]);
  const auto all = gather_words(sharing, words);
  if (!all.ok()) return all.error().in("comparing what was gathered");
  for (const ReceivedUnit& unit : received)
    for (auto row = all.value().begin(); row != all.value().end(); row += std::ssize(words)) {
      const uint64_t from = row[0], holds = row[2 + static_cast<int64_t>(unit.unit)];
      if (row[1] != 0 || unit.parts[from] == holds) continue;
      StateReport found =
          report_at(StateFault::kReceived, state_place(unit.unit, StateTensor::kGathered));
      found.source = first_rank + static_cast<int>(from);
      return found;
    }
  return StateReport{};
}

// Rule 7: in the group, then among groups. Collective.
Result<StateReport> StateAudit::compare_exchanged() const {
  const int members = groups_.group->world_size(), rank = groups_.world->rank();
  StateReport found;
  for (const bool first_leg : {true, false}) {
    Communicator& leg = first_leg ? *groups_.group : *groups_.peers;
    std::vector<std::vector<uint64_t>> sent(static_cast<size_t>(leg.world_size()));
    std::vector<ShippedDigests> digests;
    for (const auto& unit : units_) {
      digests.push_back(first_leg ? unit->grads.take_digests_in_group()
                                  : unit->grads.take_digests_among_groups());
      for (size_t m = 0; m < sent.size(); ++m) sent[m].push_back(digests.back().sent[m]);
    }
    if (leg.world_size() == 1) continue;
    auto shipped = swap_words(leg, sent);
    if (!shipped.ok()) return shipped.error().in("comparing what was exchanged");
    for (size_t u = 0; u < units_.size(); ++u)
      for (size_t m = 0; m < sent.size(); ++m) {
        if (shipped.value()[m][u] == digests[u].received[m] || found.fault != StateFault::kNone)
          continue;
        const int from = static_cast<int>(m);
        found = {StateFault::kExchanged,
                 u,
                 {},
                 first_leg ? rank / members * members + from : from * members + rank % members};
      }
  }
  return found;
}

}  // namespace lockstep::core
