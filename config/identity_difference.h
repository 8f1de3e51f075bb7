// What differs between two identities: lists of "name=value" lines, of the config (identity_lines)
// or of a whole run.
#pragma once

#include <string>
#include <vector>

namespace lockstep {
inline namespace base {

struct LineDifference {
  std::string name, was, is;  // "(absent)": there is no such line
};
std::vector<LineDifference> differing_lines(const std::vector<std::string>& was,
                                            const std::vector<std::string>& is);
// "name: was X, is Y", one a line, for every name whose value differs.
std::vector<std::string> identity_difference(const std::vector<std::string>& was,
                                             const std::vector<std::string>& is);

}  // namespace base
}  // namespace lockstep
