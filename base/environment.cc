#include "base/environment.h"

#include <unistd.h>

namespace lockstep {
inline namespace base {

Environment own_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string words = *entry;
    const size_t equals = words.find('=');
    if (equals != std::string::npos)
      environment[words.substr(0, equals)] = words.substr(equals + 1);
  }
  return environment;
}

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string variable(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

}  // namespace base
}  // namespace lockstep
