#include "config/identity_difference.h"

#include <map>

#include "base/text.h"

namespace lockstep {
inline namespace base {
namespace {

std::map<std::string, std::string> by_name(const std::vector<std::string>& lines) {
  std::map<std::string, std::string> map;
  for (const std::string& line : lines) {
    const size_t equals = line.find('=');
    map[line.substr(0, equals)] = equals == std::string::npos ? "" : line.substr(equals + 1);
  }
  return map;
}

}  // namespace

std::vector<LineDifference> differing_lines(const std::vector<std::string>& was,
                                            const std::vector<std::string>& is) {
  const auto before = by_name(was), now = by_name(is);
  std::vector<LineDifference> differing;
  auto value = [](const std::map<std::string, std::string>& map, const std::string& name) {
    const auto found = map.find(name);
    return found == map.end() ? std::string("(absent)") : found->second;
  };
  std::map<std::string, bool> names;
  for (const auto& [name, v] : before) names[name] = true;
  for (const auto& [name, v] : now) names[name] = true;
  for (const auto& [name, unused] : names)
    if (value(before, name) != value(now, name))
      differing.push_back({name, value(before, name), value(now, name)});
  return differing;
}

std::vector<std::string> identity_difference(const std::vector<std::string>& was,
                                             const std::vector<std::string>& is) {
  std::vector<std::string> differing;
  for (const LineDifference& d : differing_lines(was, is))
    differing.push_back(text(d.name, ": was ", d.was, ", is ", d.is));
  return differing;
}

}  // namespace base
}  // namespace lockstep
