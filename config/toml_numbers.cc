#include "config/toml_numbers.h"

#include "config/toml_file.h"

namespace lockstep {
inline namespace base {

Result<std::vector<TomlNumber>> read_toml_numbers(const std::filesystem::path& path) {
  LOCKSTEP_TRY(const toml::table parsed, read_toml(path));
  std::vector<TomlNumber> numbers;
  for (const auto& [key, node] : parsed) {
    const std::string where = place(path, key.source());
    const auto whole = node.value_exact<int64_t>();
    const auto real = whole ? static_cast<double>(*whole) : node.value_exact<double>();
    if (!real)
      return Error{Code::kConfig, text(where, ": ", key.str(), " is of type ", text(node.type()),
                                       ", but it must be a number")};
    numbers.push_back({std::string(key.str()), *real, where});
  }
  return numbers;
}

}  // namespace base
}  // namespace lockstep
