// Environment variables as a value, which comes in as an argument.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/number.h"
#include "base/result.h"
#include "base/text.h"

namespace lockstep {
inline namespace base {

using Environment = std::map<std::string, std::string>;

Environment own_environment();  // this process's
std::string host_name();        // "" when the system does not say
// Empty: it is not set.
std::string variable(const Environment& environment, const std::string& name);

// The number in a variable, which must be set; or `otherwise`, where that is given and the variable
// is not set or is empty. Errors: kConfig, naming the variable.
template <std::integral Number = int64_t>
Result<Number> number_variable(const Environment& environment, const std::string& name,
                               std::type_identity_t<std::optional<Number>> otherwise = {}) {
  const std::string word = variable(environment, name);
  if (word.empty() && otherwise) return *otherwise;
  const auto number = parse_number<Number>(word);
  if (number && std::cmp_greater_equal(*number, 0)) return *number;
  return Error{Code::kConfig,
               text("environment variable ", name, " must be a number, not \"", word, "\"")};
}

}  // namespace base
}  // namespace lockstep
