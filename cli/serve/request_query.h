// The words after '?' of a request: "run=a&run=b&field=loss". Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::cli {

class RequestQuery {
 public:
  // Percent signs and '+' are decoded; what follows '%' and is no hexadecimal digit stays as it is.
  explicit RequestQuery(std::string_view words);

  // In their order.
  std::vector<std::string> all(std::string_view key) const;
  // The first one; "" where there is none.
  std::string first(std::string_view key) const;
  // The first one as a number, `missing` where there is none; nothing where it is no number, or not
  // in [least, most].
  std::optional<double> number(std::string_view key, double missing, double least,
                               double most) const;

 private:
  std::vector<std::pair<std::string, std::string>> pairs_;
};

}  // namespace lockstep::cli
