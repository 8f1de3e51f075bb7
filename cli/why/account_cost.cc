// What a failure cost, and what followed from it.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "cli/shared/json_fields.h"
#include "cli/why/account.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

// Steps that were logged before `then_s` and again after it, for who has no better source.
void count_again(Cost& cost, const Failure& failure, double until_s, const RunFacts& facts) {
  int64_t front = -1;
  for (const LoggedStep& each : facts.steps)
    if (each.unix_s <= failure.unix_s) front = std::max(front, each.step);
  cost.steps_again = 0;
  cost.seconds_again = 0;
  for (const LoggedStep& each : facts.steps) {
    if (each.unix_s <= failure.unix_s || each.unix_s > until_s || each.step > front) continue;
    ++cost.steps_again;
    cost.seconds_again += each.seconds;
  }
}

// Those of a generation that only followed from the failure, said once for all ranks that ended
// alike.
struct Ends {
  size_t at = 0;  // of the first one's link
  std::vector<int64_t> ranks;
};

std::string ranks_text(const std::vector<int64_t>& ranks) {
  constexpr size_t kNamed = 8;
  if (ranks.size() == 1) return text("rank ", ranks.front());
  std::string words = "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kNamed); ++i)
    words += text(i == 0 ? "" : ", ", ranks[i]);
  return ranks.size() > kNamed ? text(words, " and ", ranks.size() - kNamed, " more") : words;
}

std::string place_text(const json& event) {
  const int64_t rank = integer_or(event, "rank", -1), step = integer_or(event, "step", -1);
  const std::string node = string_or_empty(event, "node");
  return text(rank < 0 ? "" : text("rank ", rank, node.empty() ? "" : text(" on ", node), ": "),
              string_or_empty(event, "reason"), step < 0 ? "" : text(", at step ", step));
}

// "": the event says nothing that a reader wants.
std::string link_text(const json& event, const std::string& name) {
  const std::string reason = string_or_empty(event, "reason");
  const int64_t generation = integer_or(event, "generation", 0);
  if (name == "spawned" || name == "first_step") return "";
  if (name == "generation_start")
    return text("generation ", generation, " starts with ",
                counted(integer_or(event, "world_size", 0), "rank"));
  if (name == "recovered")
    return text("training continues from step ", integer_or(event, "step", 0));
  if (name == "stopped_all") return text("all ranks of generation ", generation, " have ended");
  if (name == "stop_requested") return text("a stop is requested: ", reason);
  if (name == "waiting_for_nodes")
    return text("the job waits for nodes", reason.empty() ? "" : ": " + reason);
  if (name == "node_joined") return text("node ", reason, " joins");
  if (name == "done" || name == "stopped" || name == "failed")
    return text("the launch ends with status ", integer_or(event, "exit_status", -1), ": ", reason);
  return place_text(event);
}

ChainLink link_of(const json& event, const std::string& name) {
  ChainLink link;
  link.event = name;
  link.unix_s = number_or(event, "t", -1);
  link.rank = integer_or(event, "rank", -1);
  link.step = integer_or(event, "step", -1);
  link.node = string_or_empty(event, "node");
  link.words = link_text(event, name);
  return link;
}

}  // namespace

double Cost::rank_seconds() const {
  if (ranks < 0 || (seconds_again < 0 && seconds_down < 0)) return -1;
  return (std::max(0.0, seconds_again) + std::max(0.0, seconds_down)) * static_cast<double>(ranks);
}

Cost cost_of(const Failure& failure, const LaunchRecord& launch, const RunFacts& facts) {
  if (!failure.recovered()) return {};
  Cost cost;
  cost.ranks = failure.next_world_size;
  // Nobody trained while a rank hung, either.
  cost.seconds_down = failure.recovered_s - failure.unix_s + std::max(0.0, failure.exit.hung_s);
  cost.steps_again = failure.redone_steps;
  cost.seconds_again = failure.redone_s;
  if (cost.steps_again >= 0) return cost;
  double until_s = launch.end_unix_s < 0 ? facts.now_s : launch.end_unix_s;
  for (const Failure& next : launch.failures)
    if (next.unix_s > failure.unix_s) until_s = std::min(until_s, next.unix_s);
  count_again(cost, failure, until_s, facts);
  return cost;
}

Cost cost_of_end(const LaunchRecord& launch, const RunFacts& facts) {
  Cost cost;
  cost.when_resumed = true;
  cost.ranks = launch.world_size > 0 ? launch.world_size : facts.status.membership.world_size;
  const int64_t last = facts.steps.empty() ? -1 : facts.steps.back().step;
  const int64_t saved = std::max<int64_t>(0, facts.status.checkpoint_step);
  if (last < 0) return cost;
  cost.steps_again = std::max<int64_t>(0, last - saved);
  cost.seconds_again = 0;
  std::map<int64_t, double> seconds;  // of the newest record of each step
  for (const LoggedStep& each : facts.steps) seconds[each.step] = each.seconds;
  for (const auto& [step, each] : seconds)
    if (step > saved && step <= last) cost.seconds_again += each;
  return cost;
}

std::vector<ChainLink> chain_of(const LaunchRecord& launch, size_t from) {
  std::vector<ChainLink> chain;
  std::map<std::pair<int64_t, std::string>, Ends> ends;  // by generation and reason
  std::pair<int64_t, int64_t> culprit{-1, -1};           // generation, rank
  for (size_t i = from; i < launch.events.size(); ++i) {
    const json& event = launch.events[i];
    const std::string name = string_or_empty(event, "event");
    const std::pair place{integer_or(event, "generation", -1), integer_or(event, "rank", -1)};
    if (name == "failure_detected") culprit = place;
    if (name == "worker_exit" && place == culprit) continue;  // said by the failure
    ChainLink link = link_of(event, name);
    if (link.words.empty()) continue;
    if (name == "worker_exit") {
      const std::string reason = string_or_empty(event, "reason");
      auto& [at, ranks] =
          ends.try_emplace({place.first, reason}, Ends{chain.size(), {}}).first->second;
      ranks.insert(std::upper_bound(ranks.begin(), ranks.end(), place.second), place.second);
      if (ranks.size() > 1) {
        chain[at].words = text(ranks_text(ranks), ": ", reason);
        chain[at].rank = -1;
        chain[at].node.clear();
        continue;
      }
    }
    chain.push_back(std::move(link));
  }
  return chain;
}

}  // namespace lockstep::cli
