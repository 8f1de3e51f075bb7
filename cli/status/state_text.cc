#include "cli/status/state_text.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace lockstep::cli {
namespace {

bool steps(const RankStatus& rank) {
  return rank.alive && rank.member.progress.phase >= Phase::kStep;
}

// Seen from another host than its only one, ranks are as their generation began: nobody knows.
bool all_step(const RunStatus& status) {
  const bool unseen = status.membership.nodes.empty() &&
                      std::any_of(status.ranks.begin(), status.ranks.end(),
                                  [](const RankStatus& rank) { return rank.elsewhere; });
  return unseen || std::all_of(status.ranks.begin(), status.ranks.end(), steps);
}

// "ranks: 2 in load, 1 gone"
std::string phases_of(const RunStatus& status) {
  std::map<std::string, int> count;
  for (const RankStatus& rank : status.ranks)
    ++count[rank.alive ? text("in ", rank.phase()) : "gone"];
  std::string words;
  for (const auto& [phase, ranks] : count)
    words += text(words.empty() ? "ranks: " : ", ", ranks, " ", phase);
  return words;
}

std::string last_failure(const RunStatus& status) {
  if (status.last_error.empty()) return status.last_failure;
  return text(status.last_failure, ": ", status.last_error);
}

std::string resumes(const RunStatus& status) {
  if (status.checkpoint_step < 0)
    return "; it has no checkpoint, so the same command starts from step 0";
  return text("; run the same command again to resume after step ", status.checkpoint_step);
}

std::string suspects_text(const RunStatus& status) {
  std::string first;
  int64_t others = 0;
  for (const RankStatus& rank : status.ranks) {
    if (rank.suspect.empty()) continue;
    if (first.empty())
      first = text("rank ", rank.member.rank, " is suspect: ", rank.suspect);
    else
      ++others;
  }
  return others == 0 ? first : text(first, " (and ", others, " more)");
}

// " on 2 of 3 nodes"; "": it has all that were wanted.
std::string fewer_nodes(const RunStatus& status) {
  const auto& nodes = status.membership.nodes;
  const auto members = std::count_if(nodes.begin(), nodes.end(),
                                     [](const auto& node) { return node.first_rank >= 0; });
  if (members < 1 || members >= status.wanted_nodes) return "";
  return text(" on ", members, " of ", status.wanted_nodes, " nodes");
}

std::string running_text(const RunStatus& status) {
  if (!status.waiting_for.empty())
    return text("waiting for nodes for ", duration_text(status.waiting_s), ": ",
                status.waiting_for);
  if (status.failed_since_recovery && !all_step(status))
    return text("recovering: ", last_failure(status), "; ", phases_of(status));
  const std::string suspects = suspects_text(status);
  if (!suspects.empty()) return text("running, but ", suspects);
  const bool starts =
      !all_step(status) && std::none_of(status.ranks.begin(), status.ranks.end(), steps);
  return starts ? text("starting; ", phases_of(status)) : text("running", fewer_nodes(status));
}

}  // namespace

std::string state_text(const RunStatus& status) {
  if (status.running()) return running_text(status);
  if (status.state == "done") return "done";
  if (status.state == "stopped") return text("stopped on request", resumes(status));
  if (status.state == "agent_gone")
    return text("ended with its agent, which is gone", resumes(status));
  if (status.state == "failed") {
    const int64_t exit_status = status.membership.exit_status;
    std::string words = exit_status < 0 ? "failed" : text("failed with status ", exit_status);
    if (status.failed_since_recovery) words += text(" after ", last_failure(status));
    return words;
  }
  return "unknown: the run folder was not written for a while, or the agent is gone (see the "
         "notes)";
}

}  // namespace lockstep::cli
