#include "launcher/control/formation.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

constexpr size_t kStandbys = 2;
// By the place of a state in the variant.
constexpr const char* kStates[] = {"gathering", "preparing", "running", "finishing", "over"};
constexpr bool kMayFollow[5][5] = {
    {false, true, false, true, true},   // gathering
    {true, true, true, true, true},     // preparing
    {true, true, false, true, true},    // running
    {false, false, false, false, true}  // finishing
};

}  // namespace

void Formation::change(AnyState state) {
  LOCKSTEP_CHECK(kMayFollow[state_.index()][state.index()], kStates[state_.index()], " to ",
                 kStates[state.index()], ", generation ", generation_);
  state_ = std::move(state);
}

Running& Formation::running() {
  auto* running = in<Running>();
  LOCKSTEP_CHECK(running != nullptr, "it is ", kStates[state_.index()], ", generation ",
                 generation_);
  LOCKSTEP_CHECK(running->spawned <= members_.size() && running->ended.size() == samples_.size(),
                 running->spawned, " of ", members_.size(), " have spawned ", samples_.size());
  return *running;
}

bool Formation::is_member(const Node& node, bool or_was) const {
  if (node.index < 0 || node.index >= std::ssize(members_)) return false;
  const Node* there = members_[static_cast<size_t>(node.index)];
  return there == &node || (or_was && there == nullptr);
}

void Formation::number_at_least(int64_t generation) {
  LOCKSTEP_CHECK(in<Gathering>() != nullptr, "it is ", kStates[state_.index()]);
  generation_ = std::max(generation_, generation);
}

int64_t Formation::per_node() const {
  return members_.empty() ? 0 : world_size() / static_cast<int64_t>(members_.size());
}

const Node* Formation::node_of(int64_t rank) const {
  const auto index = static_cast<size_t>(per_node() > 0 ? rank / per_node() : 0);
  return index < members_.size() ? members_[index] : nullptr;
}

int32_t Formation::pid_of(int64_t rank) const {
  const Node* node = node_of(rank);
  const auto local = static_cast<size_t>(per_node() > 0 ? rank % per_node() : 0);
  return node != nullptr && local < node->pids.size() ? node->pids[local] : -1;
}

std::vector<int32_t> Formation::all_pids() const {
  std::vector<int32_t> pids;
  for (const Node* node : members_)
    if (node != nullptr) pids.insert(pids.end(), node->pids.begin(), node->pids.end());
  return pids;
}

const std::string& Formation::node_name_of(int64_t rank) const {
  static const std::string unknown;
  const auto index = static_cast<size_t>(per_node() > 0 ? rank / per_node() : 0);
  return index < names_.size() ? names_[index] : unknown;
}

Progress Formation::progress_of(int64_t rank) const {
  const auto at = static_cast<size_t>(rank);
  return at < samples_.size() ? samples_[at].progress : Progress{};
}

std::vector<Peer> Formation::standbys(NodeId coordinator) const {
  std::vector<const Node*> able;
  LOCKSTEP_CHECK(!lost_a_member(), "generation ", generation_);
  for (const Node* node : members_)
    if (node->peer.id != coordinator && !node->peer.address.empty()) able.push_back(node);
  const size_t count = std::min(kStandbys, able.size());
  std::vector<Peer> standbys;
  for (size_t i = 0; i < count; ++i)
    standbys.push_back(able[(2 * i + 1) * able.size() / (2 * count)]->peer);
  return standbys;
}

void Formation::prepare(const Prepare& generation, std::vector<Node*> members, std::string nonce,
                        int64_t now_ns) {
  const int64_t number = generation.generation, size = std::ssize(members);
  LOCKSTEP_CHECK_RULE(P10, members_.empty() ? number >= generation_ : number > generation_,
                      "generation ", number, " after ", generation_);
  LOCKSTEP_CHECK(in<Running>() == nullptr || all_ended(), "generation ", generation_, " runs");
  LOCKSTEP_CHECK(size >= 1 && size == generation.nodes && generation.world_size >= size &&
                     generation.world_size % size == 0,
                 size, " of ", generation.nodes, " nodes, ", generation.world_size, " ranks");
  generation_ = number;
  members_ = std::move(members);
  names_.clear();
  for (const Node* member : members_) names_.push_back(member == nullptr ? "" : member->name);
  for (size_t i = 0; i < members_.size(); ++i) {
    LOCKSTEP_CHECK(members_[i] != nullptr && members_[i]->index < 0 && !members_[i]->ready,
                   "member ", i, " of generation ", number);
    members_[i]->index = static_cast<int64_t>(i);
  }
  samples_.assign(static_cast<size_t>(generation.world_size), Sample{});
  nonce_ = std::move(nonce);
  enter(Preparing{.since_ns = now_ns});
}

// [P2] The promise counts once no worker of the node lives.
void Formation::note_promise(Node& node, const Report& report, NodeId leader) {
  auto* preparing = in<Preparing>();
  if (preparing == nullptr || node.index < 0 || node.ready) return;
  LOCKSTEP_CHECK(is_member(node), "node ", node.name, " has index ", node.index);
  node.ready = report.promised == generation_ && report.promised_to == leader &&
               (report.alive == 0 || without_ == Rule::kP2);
  if (!node.ready) return;
  LOCKSTEP_CHECK_RULE(P2, report.alive == 0, "node ", node.name, ": ", report.alive, " live");
  ++preparing->ready;
  LOCKSTEP_CHECK(preparing->ready <= members_.size(), preparing->ready, " of ", members_.size());
}

bool Formation::all_promised() const {
  const auto* preparing = in<Preparing>();
  if (preparing == nullptr) return false;
  return preparing->ready == members_.size() ||
         (without_ == Rule::kP5 && 2 * preparing->ready > members_.size());
}

bool Formation::lost_a_member() const {
  return std::find(members_.begin(), members_.end(), nullptr) != members_.end();
}

std::string Formation::reason_late(const Node& node, NodeId leader, const Timing& timing,
                                   int64_t now_ns) const {
  const auto* preparing = in<Preparing>();
  if (preparing == nullptr || node.index < 0 || node.ready || node.peer.id == leader) return "";
  const bool ends_workers = node.promised == generation_ && node.promised_to == leader;
  const int64_t waited_ns = now_ns - preparing->since_ns;
  if (waited_ns < (ends_workers ? timing.reap_ns : timing.ack_ns)) return "";
  return text(
      ends_workers ? "its workers have not ended" : "it has not agreed to the next generation",
      " for ", waited_ns / kMs, " ms");
}

void Formation::run() {
  const auto* preparing = in<Preparing>();
  LOCKSTEP_CHECK(preparing != nullptr, "it is ", kStates[state_.index()]);
  LOCKSTEP_CHECK(!lost_a_member(), "a member of generation ", generation_, " is lost");
  LOCKSTEP_CHECK_RULE(
      P5,
      std::all_of(members_.begin(), members_.end(), [](const Node* node) { return node->ready; }),
      preparing->ready, " of ", members_.size(), " have promised generation ", generation_);
  enter(Running{.ended = std::vector<bool>(samples_.size()), .unreported = {}});
}

void Formation::note_spawned(Node& node, const Report& report) {
  if (node.spawned || (report.pids.empty() && report.spawn_error.empty())) return;
  LOCKSTEP_CHECK(is_member(node), "node ", node.name, " has index ", node.index);
  Running& now = running();
  LOCKSTEP_CHECK(now.spawned < members_.size(), now.spawned, " of ", members_.size());
  node.spawned = true;
  node.pids = report.pids;
  ++now.spawned;
}

void Formation::note_samples(const Node& node, const Report& report) {
  LOCKSTEP_CHECK(is_member(node, /*or_was=*/true), "node ", node.name, " has index ", node.index);
  Running& now = running();
  const auto first = static_cast<size_t>(first_rank(node));
  LOCKSTEP_CHECK(first + static_cast<size_t>(per_node()) <= samples_.size(), first, " of ",
                 samples_.size());
  const size_t count = std::min(report.samples.size(), static_cast<size_t>(per_node()));
  for (size_t i = 0; i < count; ++i) samples_[first + i] = report.samples[i];
  if (count > 0) now.samples_new = true;
}

void Formation::note_exits(Node& node, const Report& report, int64_t now_ns) {
  LOCKSTEP_CHECK(is_member(node, /*or_was=*/true), "node ", node.name, " has index ", node.index);
  Running& running = this->running();
  const int64_t first = first_rank(node);
  const auto from = static_cast<size_t>(std::max(report.exits_from, 0));
  for (size_t i = node.exits_seen; i < from + report.exits.size() && i >= from; ++i) {
    const WorkerExit& exit = report.exits[i - from];
    ++node.exits_seen;
    const int64_t local = exit.rank - first;
    const auto rank = static_cast<size_t>(exit.rank);
    if (local < 0 || local >= per_node() || running.ended[rank]) continue;
    running.ended[rank] = true;
    samples_[rank].progress = exit.progress;
    if (running.unreported.empty()) running.unreported_alive_ns = now_ns - report.alive_ns;
    running.unreported.push_back(exit);
  }
}

bool Formation::all_spawned() const {
  const auto* running = in<Running>();
  return running != nullptr && running->spawned == members_.size();
}

bool Formation::all_ended() const {
  const auto* running = in<Running>();
  LOCKSTEP_CHECK(running != nullptr, "it is ", kStates[state_.index()]);
  return std::find(running->ended.begin(), running->ended.end(), false) == running->ended.end();
}

WorkersExited Formation::take_exits() {
  Running& running = this->running();
  LOCKSTEP_CHECK(running.unreported.size() <= samples_.size(), running.unreported.size(),
                 " ends of ", samples_.size(), " workers");
  return {std::exchange(running.unreported, {}), running.unreported_alive_ns};
}

void Formation::lose(Node& node, const std::string& why) {
  LOCKSTEP_CHECK(is_member(node, /*or_was=*/true), "node ", node.name, " has index ", node.index);
  members_[static_cast<size_t>(node.index)] = nullptr;
  auto* running = in<Running>();
  if (running == nullptr) return;
  if (!node.spawned) ++running->spawned;
  LOCKSTEP_CHECK(running->spawned <= members_.size(), running->spawned, " of ", members_.size());
  if (running->unreported.empty()) running->unreported_alive_ns = node.heard_ns;
  const int64_t first = first_rank(node);
  for (int64_t rank = first; rank < first + per_node(); ++rank) {
    const auto at = static_cast<size_t>(rank);
    if (running->ended[at]) continue;
    running->ended[at] = true;
    WorkerExit exit;
    exit.rank = static_cast<int>(rank);
    exit.node_lost = text("node ", node.name, " lost: ", why);
    exit.progress = samples_[at].progress;
    running->unreported.push_back(std::move(exit));
  }
}

}  // namespace lockstep::launcher::control
