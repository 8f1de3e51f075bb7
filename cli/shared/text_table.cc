#include "cli/shared/text_table.h"

#include <algorithm>

namespace lockstep::cli {
namespace {

// Letters, not bytes: UTF-8 continuation bytes take no room.
size_t letters(const std::string& words) {
  return static_cast<size_t>(std::count_if(words.begin(), words.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string TextTable::str() const {
  std::vector<size_t> widths;
  for (const auto& cells : rows_) {
    widths.resize(std::max(widths.size(), cells.size()), 0);
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], letters(cells[i]));
  }
  size_t total = 0;
  for (const size_t width : widths) total += width + 2;
  std::string out;
  for (const auto& cells : rows_) {
    if (cells.empty()) out += std::string(total, '-');
    for (size_t i = 0; i < cells.size(); ++i) {
      out += cells[i];
      if (i + 1 < cells.size()) out += std::string(widths[i] - letters(cells[i]) + 2, ' ');
    }
    out += "\n";
  }
  return out;
}

}  // namespace lockstep::cli
