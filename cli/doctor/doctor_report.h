// What `lockstep doctor` shows: facts and verdicts of one or several nodes, as text or JSON.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/doctor_verdicts.h"

namespace lockstep::cli {

struct NodeReport {
  NodeFacts facts;
  std::vector<Verdict> verdicts;
};
struct DoctorReport {
  std::vector<NodeReport> nodes;
  std::vector<Verdict> together;  // what only shows when nodes are looked at side by side

  Level worst() const;
};

// A line a verdict, the advice below it; at the end how many are not ok. Ends with a newline.
std::string doctor_text(const DoctorReport& report);
// {"verdict": …, "nodes": [{"node": …, "facts": {…}, "verdicts": […]}], "together": […]}
std::string doctor_json(const DoctorReport& report);

}  // namespace lockstep::cli
