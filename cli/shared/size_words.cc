#include "cli/shared/size_words.h"

#include <cctype>
#include <cstdlib>
#include <map>

namespace lockstep::cli {

std::optional<int64_t> bytes_of_words(const std::string& words) {
  constexpr double kKib = 1024;
  static const std::map<std::string, double> kUnits = {{"", 1},
                                                       {"B", 1},
                                                       {"KB", 1e3},
                                                       {"MB", 1e6},
                                                       {"GB", 1e9},
                                                       {"TB", 1e12},
                                                       {"KIB", kKib},
                                                       {"MIB", kKib * kKib},
                                                       {"GIB", kKib * kKib * kKib},
                                                       {"TIB", kKib * kKib * kKib * kKib}};
  char* end = nullptr;
  const double number = std::strtod(words.c_str(), &end);
  if (end == words.c_str()) return std::nullopt;
  std::string unit = end;
  unit.erase(0, unit.find_first_not_of(' '));
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const auto factor = kUnits.find(unit);
  if (factor == kUnits.end()) return std::nullopt;
  const double bytes = number * factor->second;
  if (!(bytes >= 1 && bytes < 1e18)) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

}  // namespace lockstep::cli
