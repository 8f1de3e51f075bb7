#include "cli/doctor/doctor_report.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "cli/doctor/doctor_facts_json.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

std::string padded(std::string word, size_t width) {
  word.resize(std::max(width, word.size() + 1), ' ');
  return word;
}

std::string lines_of(const std::vector<Verdict>& verdicts) {
  constexpr size_t kLevelWidth = 6, kWhatWidth = 10;
  std::string out;
  for (const Verdict& v : verdicts) {
    out += padded(level_name(v.level), kLevelWidth) + padded(v.what, kWhatWidth) + v.found + "\n";
    if (!v.advice.empty())
      out += std::string(kLevelWidth + kWhatWidth, ' ') + "-> " + v.advice + "\n";
  }
  return out;
}

ordered_json json_of(const std::vector<Verdict>& verdicts) {
  ordered_json json = ordered_json::array();
  for (const Verdict& v : verdicts)
    json.push_back({{"level", level_name(v.level)},
                    {"what", v.what},
                    {"found", v.found},
                    {"advice", v.advice}});
  return json;
}

template <typename Visit>
void each_verdict(const DoctorReport& report, Visit visit) {
  for (const NodeReport& node : report.nodes)
    for (const Verdict& verdict : node.verdicts) visit(verdict);
  for (const Verdict& verdict : report.together) visit(verdict);
}

}  // namespace

Level DoctorReport::worst() const {
  Level worst = Level::kOk;
  each_verdict(*this, [&](const Verdict& v) { worst = std::max(worst, v.level); });
  return worst;
}

std::string doctor_text(const DoctorReport& report) {
  std::string out;
  for (const NodeReport& node : report.nodes)
    out += "node " + node.facts.node + "\n" + lines_of(node.verdicts);
  if (!report.together.empty()) out += "all nodes\n" + lines_of(report.together);
  int warnings = 0, failures = 0;
  each_verdict(report, [&](const Verdict& v) {
    warnings += v.level == Level::kWarn;
    failures += v.level == Level::kBad;
  });
  return out + text(level_name(report.worst()), ": ", failures, " bad, ",
                    counted(warnings, "warning"), "\n");
}

std::string doctor_json(const DoctorReport& report) {
  ordered_json json{{"verdict", level_name(report.worst())}, {"nodes", ordered_json::array()}};
  for (const NodeReport& node : report.nodes)
    json["nodes"].push_back({{"node", node.facts.node},
                             {"facts", ordered_json(nlohmann::json(node.facts))},
                             {"verdicts", json_of(node.verdicts)}});
  json["together"] = json_of(report.together);
  return dump_json(json, 1);
}

}  // namespace lockstep::cli
