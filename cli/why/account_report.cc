#include "cli/why/account_report.h"

#include <cmath>

#include "base/clock.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kHour_s = 3600;

int64_t to_ns(double unix_s) { return std::llround(unix_s * 1e3) * 1'000'000; }

std::string seconds_text(double seconds) {
  if (seconds >= 100) return duration_text(seconds) + " h";
  return text(fixed(seconds, seconds < 10 ? 1 : 0), " s");
}

std::string when_text(const Account& a) {
  std::string words = text(utc_text(to_ns(a.unix_s)), " (", seconds_text(a.ago_s), " ago)");
  if (a.step >= 0) words += text(", at step ", a.step);
  if (a.generation >= 0) words += text(", generation ", a.generation);
  return words;
}

std::string where_text(const Account& a) {
  std::string words = a.node.empty() ? "" : text("node ", a.node);
  const auto add = [&](const std::string& more) { words += (words.empty() ? "" : ", ") + more; };
  if (a.rank >= 0) add(text("rank ", a.rank));
  if (a.gpu >= 0) add(text("GPU ", a.gpu, " of those that the job has there"));
  if (a.pid >= 0) add(text("process ", a.pid));
  return words;
}

std::string hours_text(const Cost& cost, bool on_gpus) {
  const double hours = cost.rank_seconds() / kHour_s;
  const char* const unit = on_gpus ? " GPU-hours" : " rank-hours";
  return hours < 0.01 ? text("less than 0.01", unit) : text(fixed(hours, hours < 10 ? 2 : 0), unit);
}

std::string cost_text(const Cost& cost, bool on_gpus) {
  if (cost.rank_seconds() < 0) return "";
  std::string words;
  if (cost.steps_again == 0) words = "no step is lost";
  if (cost.steps_again > 0) {
    words = counted(cost.steps_again, "step");
    if (cost.seconds_again >= 0) words += text(" (", seconds_text(cost.seconds_again), ")");
    words += cost.steps_again == 1 ? " is" : " are";
    words += cost.when_resumed ? " computed again when the run is resumed" : " computed again";
  }
  if (cost.seconds_down >= 0)
    words += text(words.empty() ? "" : ", and ", seconds_text(cost.seconds_down),
                  " passed without training");
  if (cost.rank_seconds() == 0) return words;
  return text(words, "; on ", counted(cost.ranks, "rank"), " that is ", hours_text(cost, on_gpus));
}

void add_row(std::string& out, const char* name, const std::string& words) {
  constexpr size_t kWidth = 8;
  if (words.empty()) return;
  const std::string head = name;
  out += head + std::string(kWidth - head.size(), ' ') + words + "\n";
}

void add_chain(std::string& out, const Account& a) {
  constexpr size_t kMost = 40;  // of them; --json has all
  if (a.chain.empty()) return;
  out += "\nWhat followed (seconds after the cause):\n";
  const size_t left_out = a.chain.size() > kMost ? a.chain.size() - kMost : 0;
  for (size_t i = 0; i < a.chain.size(); ++i) {
    if (left_out > 0 && i == kMost / 2) out += text("  … ", left_out, " more, see --json\n");
    if (i >= kMost / 2 && i < kMost / 2 + left_out) continue;
    const std::string after = fixed(a.chain[i].unix_s - a.chain.front().unix_s, 2);
    constexpr size_t kWidth = 9;
    out += text("  ", std::string(kWidth - std::min(kWidth, after.size()), ' '), after, "  ",
                a.chain[i].words, "\n");
  }
}

ordered_json known(double number) { return number < 0 ? ordered_json() : ordered_json(number); }
ordered_json known(int64_t number) { return number < 0 ? ordered_json() : ordered_json(number); }
ordered_json known(const std::string& words) {
  return words.empty() ? ordered_json() : ordered_json(words);
}

ordered_json cost_json(const Cost& cost, bool on_gpus) {
  const double seconds = cost.rank_seconds();
  const ordered_json hours = known(seconds < 0 ? -1 : seconds / kHour_s);
  return {{"steps_again", known(cost.steps_again)},
          {"seconds_again", known(cost.seconds_again)},
          {"seconds_down", known(cost.seconds_down)},
          {"ranks", known(cost.ranks)},
          {"rank_hours", hours},
          {"gpu_hours", on_gpus ? hours : ordered_json()},
          {"when_resumed", cost.when_resumed}};
}

}  // namespace

std::string account_text(const Account& a) {
  if (a.well) {
    std::string out = text(a.folder, ": ", a.what, ".\n");
    for (const std::string& remark : a.remarks) out += remark + "\n";
    return out;
  }
  std::string out;
  add_row(out, "what", a.what + (a.what.ends_with(".") ? "" : "."));
  if (a.unix_s >= 0) add_row(out, "when", when_text(a));
  add_row(out, "where", where_text(a));
  add_row(out, "cost", cost_text(a.cost, a.on_gpus));
  if (a.failures > 1)
    add_row(out, "total",
            text(a.failures,
                 " failures of this launch; its recoveries: ", cost_text(a.total, a.on_gpus)));
  add_row(out, "run", a.did);
  for (size_t i = 0; i < a.to_do.size(); ++i) add_row(out, i == 0 ? "you" : "", a.to_do[i]);
  add_row(out, "now", a.state == "failed" ? text("failed with status ", a.exit_status) : a.now);
  add_row(out, "log", a.log);
  for (const std::string& line : a.log_lines) add_row(out, "", "| " + line);
  for (const std::string& remark : a.remarks) add_row(out, "note", remark);
  add_chain(out, a);
  return out;
}

ordered_json account_json(const Account& a) {
  ordered_json json{
      {"run", a.folder},
      {"well", a.well},
      {"state", a.state},
      {"now", a.now},
      {"exit_status", known(a.exit_status)},
      {"cause", name_of(a.cause)},
      {"what", a.what},
      {"t", known(a.unix_s)},
      {"when", a.unix_s < 0 ? ordered_json() : ordered_json(utc_text(to_ns(a.unix_s)))},
      {"step", known(a.step)},
      {"generation", known(a.generation)},
      {"node", known(a.node)},
      {"rank", known(a.rank)},
      {"gpu", known(a.gpu)},
      {"pid", known(a.pid)},
      {"error", known(a.error)},
      {"cost", cost_json(a.cost, a.on_gpus)},
      {"failures", a.failures},
      {"total_cost", cost_json(a.failures > 1 ? a.total : a.cost, a.on_gpus)},
      {"run_did", known(a.did)},
      {"to_do", a.to_do},
      {"log", known(a.log)},
      {"log_lines", a.log_lines},
      {"remarks", a.remarks},
      {"chain", ordered_json::array()}};
  for (const ChainLink& link : a.chain)
    json["chain"].push_back({{"t", known(link.unix_s)},
                             {"event", link.event},
                             {"rank", known(link.rank)},
                             {"node", known(link.node)},
                             {"step", known(link.step)},
                             {"words", link.words}});
  return json;
}

}  // namespace lockstep::cli
