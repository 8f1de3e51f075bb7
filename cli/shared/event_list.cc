#include "cli/shared/event_list.h"

#include <utility>

#include "base/text.h"
#include "cli/shared/json_fields.h"

namespace lockstep::cli {

using nlohmann::json;

EventList parse_events(std::string_view contents, size_t most) {
  EventList list;
  for (const std::string& line : split(contents, '\n')) {
    if (line.empty()) continue;
    json event = parse_json(line, /*allow_exceptions=*/false);
    if (event.is_object() && !string_or_empty(event, "event").empty())
      list.events.push_back(std::move(event));
    else
      ++list.damaged_lines;
  }
  if (list.events.size() > most)
    list.events.erase(list.events.begin(), list.events.end() - static_cast<int64_t>(most));
  return list;
}

}  // namespace lockstep::cli
