// One TOML file as toml++ reads it. Only this file includes toml++.
#pragma once

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <filesystem>
#include <string>

#include "base/file_system.h"
#include "base/text.h"

namespace lockstep {
inline namespace base {

// "run.toml:7"
inline std::string place(const std::filesystem::path& path, const toml::source_region& source) {
  return text(path.string(), ":", source.begin.line);
}

// Errors: kConfig, naming file and line: no TOML; those of reading.
inline Result<toml::table> read_toml(const std::filesystem::path& path) {
  LOCKSTEP_TRY(const std::string contents, read_stream(path));
  toml::parse_result parsed = toml::parse(std::string_view(contents));
  if (!parsed.succeeded())
    return Error{Code::kConfig,
                 text(place(path, parsed.error().source()), ": ", parsed.error().description())};
  return std::move(parsed).table();
}

}  // namespace base
}  // namespace lockstep
