#include "config/list_words.h"

#include <string_view>

#include "base/text.h"
#include "config/toml_file.h"

namespace lockstep {
inline namespace base {
namespace {

std::string_view without_blanks_around(std::string_view word) {
  const size_t first = word.find_first_not_of(" \t");
  if (first == word.npos) return {};
  return word.substr(first, word.find_last_not_of(" \t") - first + 1);
}

// Takes the first item from `rest`, which then begins at a comma or is empty. An item in quotes is
// a string of TOML. Any other one goes up to the comma.
std::optional<std::string> take_item(std::string_view& rest) {
  rest = without_blanks_around(rest);
  const bool quoted = rest.starts_with('"') || rest.starts_with('\'');
  if (!quoted) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(item.size());
    return std::string(without_blanks_around(item));
  }
  size_t end = 1;
  while (end < rest.size() && rest[end] != rest[0])
    end += rest[0] == '"' && rest[end] == '\\' ? 2 : 1;
  if (end >= rest.size()) return std::nullopt;
  const toml::parse_result parsed = toml::parse(text("item = ", rest.substr(0, end + 1)));
  rest = without_blanks_around(rest.substr(end + 1));
  const bool ends = rest.empty() || rest.front() == ',';
  if (!parsed.succeeded() || !ends) return std::nullopt;
  return parsed.table()["item"].value_exact<std::string>();
}

}  // namespace

std::optional<std::vector<std::string>> list_words(const std::string& word) {
  std::string_view rest = without_blanks_around(word);
  const bool in_brackets = rest.size() >= 2 && rest.front() == '[' && rest.back() == ']';
  if (in_brackets) rest = without_blanks_around(rest.substr(1, rest.size() - 2));
  std::vector<std::string> items;
  while (!rest.empty()) {
    auto item = take_item(rest);
    if (!item || items.size() == kMaxListLength) return std::nullopt;
    items.push_back(*std::move(item));
    if (rest.empty()) break;
    rest = without_blanks_around(rest.substr(1));
    if (rest.empty() && !in_brackets) items.emplace_back();  // a comma at the end
  }
  return items;
}

}  // namespace base
}  // namespace lockstep
