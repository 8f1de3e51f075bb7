#include "config/toml_json.h"

#include <sstream>

#include "config/toml_file.h"

namespace lockstep {
inline namespace base {

Result<std::string> toml_as_json(const std::filesystem::path& path) {
  LOCKSTEP_TRY(const toml::table table, read_toml(path));
  std::ostringstream out;
  out << toml::json_formatter{table};
  return out.str();
}

}  // namespace base
}  // namespace lockstep
