// A list on the command line.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {
inline namespace base {

inline constexpr size_t kMaxListLength = 1024;

// The items of a list as the file has it, where strings may also stand without their quotes, and
// the list without its brackets: 2,3,1 or [2, 3, 1] or /a b/c,/d or ['/a,b', "/d"]; nothing is the
// empty list. Blanks around an item are none of it, those inside are. Nothing: a quote has no end,
// something follows one, or there are more than kMaxListLength.
std::optional<std::vector<std::string>> list_words(const std::string& word);

}  // namespace base
}  // namespace lockstep
