// Another tool's config as ours. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep::cli {

struct ConvertOptions {
  std::string tool;   // of config/foreign_keys.h; "": the one that has most of the keys
  int64_t ranks = 0;  // what a batch a rank is multiplied with; 0: not known
};

struct ConvertedConfig {
  std::string tool;
  std::string toml;         // a config that parse_config takes, with comments
  int64_t taken = 0;        // keys of the file that ours say
  int64_t needless = 0;     // those that say what happens here anyway
  int64_t without = 0;      // those that have no counterpart: a comment line for each
  std::string wrong_words;  // why a run with it would be refused as it is; "": it would not
};

// `json`: what the file says, an object. Where the file leaves something out that changes the curve
// and whose default is another one here, the tool's default is written.
// Errors: kConfig: no object, or no key of any tool is in it.
Result<ConvertedConfig> convert_config(std::string_view json, const std::string& where,
                                       const ConvertOptions& options);

}  // namespace lockstep::cli
