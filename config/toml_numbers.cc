#include "config/toml_numbers.h"

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "base/file_system.h"
#include "base/text.h"

namespace lockstep {
inline namespace base {

Result<std::vector<TomlNumber>> read_toml_numbers(const std::filesystem::path& path) {
  LOCKSTEP_TRY(const std::string contents, read_stream(path));
  const toml::parse_result parsed = toml::parse(std::string_view(contents));
  const auto place = [&](const toml::source_region& source) {
    return text(path.string(), ":", source.begin.line);
  };
  if (!parsed.succeeded())
    return Error{Code::kConfig,
                 text(place(parsed.error().source()), ": ", parsed.error().description())};
  std::vector<TomlNumber> numbers;
  for (const auto& [key, node] : parsed.table()) {
    const std::string where = place(key.source());
    const auto whole = node.value_exact<int64_t>();
    const auto real = whole ? static_cast<double>(*whole) : node.value_exact<double>();
    if (!real)
      return Error{Code::kConfig, text(where, ": ", key.str(), " is of type ", text(node.type()),
                                       ", it must be a number")};
    numbers.push_back({std::string(key.str()), *real, where});
  }
  return numbers;
}

}  // namespace base
}  // namespace lockstep
