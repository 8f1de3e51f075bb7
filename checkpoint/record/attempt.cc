#include "checkpoint/record/attempt.h"

#include <charconv>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step_";
constexpr size_t kStepDigits = 8;

std::optional<int64_t> number_of(std::string_view digits) {
  int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || at != end || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::string fresh_nonce(Clock& clock) {
  return hex64(mix64(static_cast<uint64_t>(clock.unix_ns()))).substr(0, 6);
}

std::string attempt_name(const Attempt& a) {
  LOCKSTEP_CHECK(a.step >= 0 && a.generation >= 0 && a.number >= 1, "step ", a.step,
                 ", generation ", a.generation, ", number ", a.number);
  const std::string again = a.number > 1 ? text("-", a.number) : "";
  std::string name =
      text(kPrefix, zero_padded(a.step, kStepDigits), ".g", a.generation, "-", a.nonce, again);
  LOCKSTEP_CHECK(parse_attempt(name) == a, name, " is read as another attempt");
  return name;
}

std::optional<Attempt> parse_attempt(const std::string& name) {
  const size_t dot = name.find(".g");
  if (name.rfind(kPrefix, 0) != 0 || dot == std::string::npos) return std::nullopt;
  const auto step = number_of(std::string_view(name).substr(kPrefix.size(), dot - kPrefix.size()));
  const auto parts = split(std::string_view(name).substr(dot + 2), '-');
  if (!step || parts.size() < 2 || parts.size() > 3) return std::nullopt;
  const auto generation = number_of(parts[0]);
  const auto number = parts.size() == 3 ? number_of(parts[2]) : 1;
  if (!generation || parts[1].empty() || !number) return std::nullopt;
  return Attempt{*step, *generation, parts[1], *number};
}

}  // namespace lockstep::checkpoint
