// A TOML file of numbers, without sections: `key = 3.5` a line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep {
inline namespace base {

struct TomlNumber {
  std::string key;
  double value = 0;
  std::string place;  // "rates.toml:7"
};
// In the order of their keys. Errors: kConfig, naming file, line and key: no TOML, or a value that
// is no number; kNotFound.
Result<std::vector<TomlNumber>> read_toml_numbers(const std::filesystem::path& path);

}  // namespace base
}  // namespace lockstep
