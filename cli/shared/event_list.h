// The events of a run, read from its events.jsonl (launcher/host/run_files.h writes it). Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace lockstep::cli {

// The objects of events.jsonl, the newest `most` of them; lines that are none are counted.
struct EventList {
  std::vector<nlohmann::json> events;
  int64_t damaged_lines = 0;
};
EventList parse_events(std::string_view contents, size_t most);

}  // namespace lockstep::cli
