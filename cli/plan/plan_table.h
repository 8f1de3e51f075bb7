// Cells and rows of the plan's tables.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "cli/shared/size_words.h"
#include "layout/memory_plan.h"

namespace lockstep::cli {

inline std::string left(std::string words, size_t width) {
  if (words.size() < width) words.resize(width, ' ');
  return words;
}

inline std::string right(const std::string& words, size_t width) {
  return words.size() < width ? std::string(width - words.size(), ' ') + words : words;
}

inline std::string percent(double share) { return fixed(100.0 * share, 1) + " %"; }

inline void print_rows(std::ostream& out, const std::vector<layout::MemoryRow>& rows) {
  for (const layout::MemoryRow& row : rows)
    out << "  " << left(row.what, 40) << right(size_of(row.bytes), 12) << "\n";
}

inline nlohmann::ordered_json json_of(const std::vector<layout::MemoryRow>& rows) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const layout::MemoryRow& row : rows)
    json.push_back({{"what", row.what}, {"bytes", row.bytes}});
  return json;
}

}  // namespace lockstep::cli
