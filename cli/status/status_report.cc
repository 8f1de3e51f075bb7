#include "cli/status/status_report.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <vector>

#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "cli/status/state_text.h"

namespace lockstep::cli {
namespace {

using launcher::Membership;
using nlohmann::ordered_json;

// What nobody knows is "-".
std::string known(int64_t number) { return number < 0 ? "-" : std::to_string(number); }
std::string known(double number, int decimals) {
  return number < 0 ? "-" : fixed(number, decimals);
}

std::string table(const RunStatus& status) {
  std::ostringstream out;
  out << std::left;
  const auto line = [&](const auto& last, const auto&... cells) {
    constexpr int kWidth = 10;
    ((out << std::setw(kWidth) << cells << ' '), ...) << last << '\n';
  };
  line("suspect", "rank", "pid", "step", "phase", "save", "committed", "in_memory", "age_s",
       "tokens_s");
  for (const RankStatus& rank : status.ranks) {
    const Progress& progress = rank.member.progress;
    line(rank.suspect.empty() ? "-" : rank.suspect, rank.member.rank, rank.member.pid,
         known(progress.step), rank.phase(), save_phase_name(progress.save_phase),
         known(progress.committed_step), known(progress.snapshot_step), known(rank.age_s, 1),
         known(rank.tokens_per_s, 0));
  }
  return out.str();
}

// What is logged of steps, one fact after the other.
std::string steps_line(const RunStatus& status) {
  if (status.step < 0) return "no step has been logged yet\n";
  std::string line = text("step ", status.step);
  if (status.planned_steps >= status.step)
    line += text(" of ", status.planned_steps);
  else if (status.planned_steps >= 0)
    line += text(", and the newest launch asked for ", status.planned_steps);
  if (status.loss) line += text("  loss ", fixed(*status.loss, 5));
  if (status.tokens_per_s >= 0)
    line += text("  ", grouped(static_cast<int64_t>(status.tokens_per_s)),
                 " tokens/s of all ranks, ", fixed(status.step_time_s, 3), " s a step");
  if (status.eta_s() >= 0) line += text("  eta ", duration_text(status.eta_s()));
  if (status.running()) line += text("  logged ", fixed(status.logged_age_s, 1), " s ago");
  return line + "\n";
}

std::string state_line(const RunStatus& status) {
  std::string line = "no checkpoint";
  if (status.checkpoint_step >= 0) line = text("last checkpoint: step ", status.checkpoint_step);
  if (status.checkpoint_age_s >= 0)
    line += text(", ", duration_text(status.checkpoint_age_s), " ago");
  line += text("  restarts ", status.restarts);
  if (!status.last_failure.empty()) line += text(", last failure: ", status.last_failure);
  if (!status.last_error.empty()) line += text("\n  last error of that rank: ", status.last_error);
  return line + "\n";
}

std::vector<std::string> suspects(const RunStatus& status) {
  std::vector<std::string> all;
  for (const RankStatus& rank : status.ranks)
    if (!rank.suspect.empty()) all.push_back(text("rank ", rank.member.rank, ": ", rank.suspect));
  return all;
}

// First and last; -1: none. Ranks of a node follow each other.
std::pair<int64_t, int64_t> ranks_of(const RunStatus& status, const Membership::Node& node) {
  int64_t first = -1, last = -1;
  for (const RankStatus& rank : status.ranks) {
    if (rank.member.node != node.name) continue;
    if (first < 0) first = rank.member.rank;
    last = rank.member.rank;
  }
  return {first, last};
}

std::string nodes_lines(const RunStatus& status) {
  std::string lines;
  for (const Membership::Node& node : status.membership.nodes) {
    const auto [first, last] = ranks_of(status, node);
    lines += text("node ", node.name);
    lines += node.first_rank < 0 ? "  spare" : text("  ranks ", first, "-", last);
    if (node.coordinator) lines += "  coordinator";
    if (node.suspect) lines += "  silent";
    lines += "\n";
  }
  return lines;
}

}  // namespace

std::string status_text(const RunStatus& status) {
  const launcher::Membership& membership = status.membership;
  std::string out = text("generation ", membership.generation, "  world_size ",
                         membership.world_size, "  state ", status.state);
  if (membership.agent_pid >= 0) out += text("  agent ", membership.agent_pid);
  if (!status.transport.empty()) out += text("  transport ", status.transport);
  if (membership.exit_status >= 0) out += text("  exit_status ", membership.exit_status);
  out += "\n" + (status.ranks.empty() ? "" : table(status)) + nodes_lines(status) +
         steps_line(status) + state_line(status) + text("now: ", state_text(status), "\n");
  if (!status.refused.empty())
    out += text("refused: the newest command did not start and changed nothing: ", status.refused,
                "\n");
  if (!status.more.empty()) out += text("more: ", status.more, "\n");
  for (const std::string& suspect : suspects(status)) out += text("suspect: ", suspect, "\n");
  for (const std::string& audit : status.audits) out += text("audit: ", audit, "\n");
  for (const std::string& line : membership.health) out += text("health: ", line, "\n");
  for (const std::string& note : status.notes) out += text("note: ", note, "\n");
  return out;
}

std::string status_json(const RunStatus& status, bool compact) {
  const launcher::Membership& membership = status.membership;
  ordered_json json{{"generation", membership.generation},
                    {"world_size", membership.world_size},
                    {"state", status.state},
                    {"state_text", state_text(status)},
                    {"agent_pid", membership.agent_pid},
                    {"transport", status.transport},
                    {"exit_status", membership.exit_status},
                    {"step", status.step},
                    {"planned_steps", status.planned_steps},
                    {"loss", status.loss ? ordered_json(*status.loss) : ordered_json(nullptr)},
                    {"tokens_per_s", status.tokens_per_s},
                    {"step_time_s", status.step_time_s},
                    {"logged_age_s", status.logged_age_s},
                    {"eta_s", status.eta_s()},
                    {"checkpoint_step", status.checkpoint_step},
                    {"checkpoint_age_s", status.checkpoint_age_s},
                    {"restarts", status.restarts},
                    {"last_failure", status.last_failure},
                    {"last_error", status.last_error},
                    {"refused", status.refused},
                    {"more", status.more},
                    {"wanted_nodes", status.wanted_nodes},
                    {"suspects", suspects(status)},
                    {"audits", status.audits},
                    {"health", membership.health},
                    {"notes", status.notes},
                    {"workers", ordered_json::array()},
                    {"nodes", ordered_json::array()}};
  for (const Membership::Node& node : membership.nodes) {
    const auto [first, last] = ranks_of(status, node);
    json["nodes"].push_back({{"name", node.name},
                             {"first_rank", first},
                             {"last_rank", last},
                             {"spare", node.first_rank < 0},
                             {"coordinator", node.coordinator},
                             {"silent", node.suspect}});
  }
  for (const RankStatus& rank : status.ranks) {
    const Progress& progress = rank.member.progress;
    json["workers"].push_back({{"rank", rank.member.rank},
                               {"node", rank.member.node},
                               {"pid", rank.member.pid},
                               {"alive", rank.alive},
                               {"stopped", rank.stopped},
                               {"step", progress.step},
                               {"phase", rank.phase()},
                               {"save_phase", save_phase_name(progress.save_phase)},
                               {"committed_step", progress.committed_step},
                               {"snapshot_step", progress.snapshot_step},
                               {"age_s", rank.age_s},
                               {"tokens_per_s", rank.tokens_per_s},
                               {"suspect", rank.suspect}});
  }
  return dump_json(json, compact ? -1 : 1);
}

void LiveText::show(const std::string& given, Size size) {
  const std::string text = printable(given);
  constexpr size_t kLastLines = 3;  // what concerns the run stands at the end
  if (size.rows <= 0) {
    out_ << text << '\n' << std::flush;
    return;
  }
  std::vector<std::string> lines = split(text, '\n');
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  const size_t room = std::max<size_t>(kLastLines + 2, static_cast<size_t>(size.rows)) - 1;
  if (lines.size() > room) {
    const size_t left_out = lines.size() - room + 1;
    const auto end = lines.end() - kLastLines;
    lines.insert(lines.erase(end - static_cast<int64_t>(left_out), end),
                 lockstep::text("... ", left_out, " more lines"));
  }
  // Between these two a terminal that knows them shows nothing new; others pass over them.
  std::string frame = "\x1b[?2026h";
  if (shown_lines_ > 0) frame += lockstep::text("\x1b[", shown_lines_, "F");
  for (const std::string& line : lines)
    frame += line.substr(0, static_cast<size_t>(std::max(1, size.columns - 1))) + "\x1b[K\n";
  frame += "\x1b[J\x1b[?2026l";
  shown_lines_ = static_cast<int>(lines.size());
  out_ << frame << std::flush;
}

}  // namespace lockstep::cli
