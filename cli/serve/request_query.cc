#include "cli/serve/request_query.h"

#include <charconv>

#include "base/number.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

std::string decoded(std::string_view words) {
  constexpr size_t kDigits = 2;
  std::string all;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == '%' && i + kDigits < words.size()) {
      if (const auto byte = parse_number<unsigned char>(words.substr(i + 1, kDigits), 16)) {
        all += static_cast<char>(*byte);
        i += kDigits;
        continue;
      }
    }
    all += words[i] == '+' ? ' ' : words[i];
  }
  return all;
}

}  // namespace

RequestQuery::RequestQuery(std::string_view words) {
  for (const std::string& pair : split(words, '&')) {
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view value = std::string_view(pair).substr(std::min(equals + 1, pair.size()));
    pairs_.emplace_back(decoded(pair.substr(0, equals)), decoded(value));
  }
}

std::vector<std::string> RequestQuery::all(std::string_view key) const {
  std::vector<std::string> values;
  for (const auto& [name, value] : pairs_)
    if (name == key) values.push_back(value);
  return values;
}

std::string RequestQuery::first(std::string_view key) const {
  for (const auto& [name, value] : pairs_)
    if (name == key) return value;
  return "";
}

std::optional<double> RequestQuery::number(std::string_view key, double missing, double least,
                                           double most) const {
  const std::string word = first(key);
  if (word.empty()) return missing;
  double value = 0;
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool whole = error == std::errc{} && stop == word.data() + word.size();
  if (!whole || !(value >= least && value <= most)) return std::nullopt;
  return value;
}

}  // namespace lockstep::cli
