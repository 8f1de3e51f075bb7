// The run's configuration: one plain struct, filled from TOML and `--section.key value` overrides.
// The table in config_fields.cc names every key once: section, key, type, limits, help, and whether
// the key is neutral (cannot change a bit of the loss curve). Everything is validated before any
// device or network is touched; an unknown key is an error that suggests the nearest known one.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/sections.h"

namespace lockstep {
inline namespace base {

struct ParsedConfig {
  Config config;
  std::vector<std::string> positional;  // words that were not flags
  // "run.toml:7: " for a key that was read there; "" of the command line
  std::map<std::string, std::string> places = {};
};

// Reads `toml_path` (may be empty: defaults), then applies `arguments`: `--section.key value`,
// `--section.key=value`, `--alias value`; booleans also as a bare flag, and `--section.no_key`.
// `-` and `_` are alike. Limits and combinations are validate's business; where anything else is
// wrong the limits are said along with it.
// Errors: kConfig with all that is wrong, a line each, in the order of the file and then of the
// arguments: file, line, key and what would be right, or whose key it is; kNotFound.
Result<ParsedConfig> parse_config(const std::filesystem::path& toml_path,
                                  const std::vector<std::string>& arguments);
// Limits and combinations that need no data or device. Errors: kConfig, a line for each that is
// wrong; of combinations only where all keep their limits. `places`: ParsedConfig's.
Result<void> validate(const Config& config, const std::map<std::string, std::string>& places = {});
// The words that parse_config would return as `positional`, whatever else is wrong.
std::vector<std::string> positional_words(const std::vector<std::string>& arguments);

// The same run with every 0 or empty value that stands for another one filled in: slots,
// global_batch_size, total_steps, head_dim, ffn_dim, dump_folder. (vocab_size is the data's.)
Config resolved(const Config& config);
// Every key, resolved, as a JSON object of sections; as a TOML file that gives the same run.
std::string config_json(const Config& config);
std::string config_toml(const Config& config);
// The keys that may change a bit of the loss curve, as "section.key=value" lines, sorted.
std::vector<std::string> identity_lines(const Config& config);
// Those, and the others that every rank of a job has to have alike: what a step, a save or a
// validation consists of, and when they are due.
std::vector<std::string> common_lines(const Config& config);
// Every key with default and meaning.
std::string config_help();
// What takes the place of a key that older versions had, in words; null: it is none.
const char* retired_key(std::string_view name);

// A key, or a short name of one, as a flag; of a boolean, it takes no value.
struct ConfigFlag {
  std::string name, help;
  bool is_bool = false;
  bool is_text = false;            // a string or a list of them: it may be a path
  std::vector<std::string> words;  // of a key that is a choice among some
};
std::vector<ConfigFlag> config_flags();

}  // namespace base
}  // namespace lockstep
