// A TOML file of any keys, as JSON: what another tool's config says.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace lockstep {
inline namespace base {

// The keys of a table stand in the order of their names. Errors: kConfig, naming file and line: it
// is no TOML; those of reading.
Result<std::string> toml_as_json(const std::filesystem::path& path);

}  // namespace base
}  // namespace lockstep
