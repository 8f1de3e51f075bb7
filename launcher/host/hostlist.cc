#include "launcher/host/hostlist.h"

#include <optional>

#include "base/number.h"
#include "base/text.h"

namespace lockstep::launcher {
namespace {

constexpr int64_t kMaxNumber = 1'000'000'000;

std::optional<int64_t> number(std::string_view digits) {
  const auto value = parse_number(digits);
  if (!value || *value < 0 || *value > kMaxNumber) return std::nullopt;
  return value;
}

Error malformed(std::string_view list, std::string_view where) {
  return {Code::kConfig, text("not a Slurm list: \"", list, "\", at \"", where, "\"")};
}

// "1-3,07" -> 1 2 3 07
Result<std::vector<std::string>> expand_ranges(std::string_view ranges) {
  std::vector<std::string> out;
  for (const std::string& range : split(ranges, ',')) {
    const size_t dash = range.find('-');
    const std::string first = range.substr(0, dash);
    const auto low = number(first);
    const auto high = dash == std::string::npos ? low : number(range.substr(dash + 1));
    if (!low || !high || *high < *low) return malformed(ranges, range);
    if (static_cast<size_t>(*high - *low) >= kMaxHosts) return malformed(ranges, "too many hosts");
    for (int64_t value = *low; value <= *high; ++value)
      out.push_back(zero_padded(value, first.size()));
  }
  return out;
}

// One name, brackets and all, from the left: every prefix so far times every number of the bracket.
Result<std::vector<std::string>> expand_name(std::string_view name) {
  std::vector<std::string> names{""};
  for (size_t at = 0; at < name.size();) {
    const size_t open = name.find('[', at);
    const std::string_view literal = name.substr(at, open - at);
    if (literal.find(']') != std::string_view::npos) return malformed(name, literal);
    for (std::string& prefix : names) prefix += literal;
    if (open == std::string_view::npos) break;
    const size_t close = name.find(']', open);
    if (close == std::string_view::npos) return malformed(name, name.substr(open));
    LOCKSTEP_TRY(const auto numbers, expand_ranges(name.substr(open + 1, close - open - 1)));
    if (names.size() * numbers.size() > kMaxHosts) return malformed(name, "too many hosts");
    std::vector<std::string> longer;
    for (const std::string& prefix : names)
      for (const std::string& digits : numbers) longer.push_back(prefix + digits);
    names = std::move(longer);
    at = close + 1;
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view list) {
  std::vector<std::string> hosts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (depth < 0 || depth > 1) return malformed(list, list.substr(i));
    if (c != ',' || (depth > 0 && i < list.size())) continue;
    const std::string_view name = list.substr(begin, i - begin);
    if (name.empty()) return malformed(list, list.substr(begin));
    LOCKSTEP_TRY(const auto names, expand_name(name));
    hosts.insert(hosts.end(), names.begin(), names.end());
    if (hosts.size() > kMaxHosts) return malformed(list, "too many hosts");
    begin = i + 1;
  }
  return hosts;
}

Result<std::vector<int64_t>> expand_tasks_per_node(std::string_view list) {
  std::vector<int64_t> tasks;
  for (const std::string& item : split(list, ',')) {
    const size_t open = item.find("(x");
    const auto count = number(item.substr(0, open));
    std::optional<int64_t> times = 1;
    if (open != std::string::npos) {
      if (item.back() != ')') return malformed(list, item);
      times = number(item.substr(open + 2, item.size() - open - 3));
    }
    if (!count || !times || tasks.size() + static_cast<size_t>(*times) > kMaxHosts)
      return malformed(list, item);
    tasks.insert(tasks.end(), static_cast<size_t>(*times), *count);
  }
  return tasks;
}

}  // namespace lockstep::launcher
