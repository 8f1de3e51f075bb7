#include "cli/serve/step_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/json.h"

namespace lockstep::cli {
namespace {

constexpr double kMaxStep = 9007199254740992;  // 2^53: beyond, a double has no number for each

// Walks over JSON text. Each call that returns false has found something else than it was to.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool take(char wanted) {
    skip_space();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  bool at_end() {
    skip_space();
    return at_ == end_;
  }
  // What stands between the quotes, escapes as they are.
  bool take_string(std::string_view& inside) {
    if (!take('"')) return false;
    const char* const begin = at_;
    for (; at_ != end_ && *at_ != '"'; ++at_) {
      if (static_cast<unsigned char>(*at_) < ' ') return false;
      if (*at_ == '\\' && ++at_ == end_) return false;
    }
    if (at_ == end_) return false;
    inside = {begin, static_cast<size_t>(at_ - begin)};
    ++at_;
    return true;
  }
  // A number as it is; null is NaN. Another value is passed over and leaves `number` alone.
  bool take_value(double& number) {
    skip_space();
    if (at_ == end_) return false;
    if (*at_ == '-' || (*at_ >= '0' && *at_ <= '9')) {
      const auto [stop, error] = std::from_chars(at_, end_, number);
      at_ = stop;
      return error == std::errc{};
    }
    std::string_view unused;
    if (*at_ == '"') return take_string(unused);
    if (*at_ == '{' || *at_ == '[') return pass_over_nested();
    if (take_word("null")) {
      number = std::numeric_limits<double>::quiet_NaN();
      return true;
    }
    return take_word("true") || take_word("false");
  }
  // Calls take_member(key), which takes the value, for each member of an object.
  template <typename TakeMember>
  bool take_object(TakeMember take_member) {
    if (!take('{')) return false;
    if (take('}')) return true;
    do {
      std::string_view key;
      if (!take_string(key) || !take(':') || !take_member(key)) return false;
    } while (take(','));
    return take('}');
  }

 private:
  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool take_word(std::string_view word) {
    if (!std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  // Lists and objects by their brackets alone.
  bool pass_over_nested() {
    std::array<char, kMaxJsonLevels> closing;
    size_t level = 0;
    std::string_view unused;
    do {
      if (at_ == end_) return false;
      const char c = *at_;
      if (c == '"') {
        if (!take_string(unused)) return false;
        continue;
      }
      ++at_;
      if (c == '{' || c == '[') {
        if (level == closing.size()) return false;
        closing[level++] = c == '{' ? '}' : ']';
      } else if ((c == '}' || c == ']') && closing[--level] != c) {
        return false;
      }
    } while (level > 0);
    return true;
  }

  const char *at_, *end_;
};

template <typename Matches>
std::optional<size_t> find_field(Matches matches) {
  const auto found = std::find_if(kFields.begin(), kFields.end(), matches);
  if (found == kFields.end()) return std::nullopt;
  return static_cast<size_t>(found - kFields.begin());
}

bool take_phases(Cursor& cursor, StepLine& line) {
  return cursor.take_object([&](std::string_view key) {
    double number = std::numeric_limits<double>::quiet_NaN();
    if (!cursor.take_value(number)) return false;
    if (const auto field = find_field([&](const auto& f) { return f.phase && key == f.key; }))
      line.values[*field] = static_cast<float>(number);
    return true;
  });
}

bool take_member(Cursor& cursor, std::string_view key, StepLine& line, bool& has_loss) {
  if (key == "phases_s") return take_phases(cursor, line);
  double number = -1;
  if (!cursor.take_value(number)) return false;
  if (key == "step") {
    if (!(number >= 0 && number < kMaxStep && number == std::floor(number))) return false;
    line.step = static_cast<int64_t>(number);
  } else if (key == "tokens") {
    line.tokens = std::isfinite(number) ? std::max(0.0, number) : 0;
  } else if (key == "t") {
    line.unix_s = std::isfinite(number) ? number : 0;
  } else if (key == "generation") {
    line.generation = std::isfinite(number) ? std::llround(number) : 0;
  } else if (key == "world_size") {
    line.world_size = std::isfinite(number) ? std::llround(number) : 0;
  } else if (key == "skipped") {
    line.skipped = true;
  } else if (const auto field =
                 find_field([&](const auto& f) { return !f.phase && key == f.key; })) {
    line.values[*field] = static_cast<float>(number);
    if (static_cast<Field>(*field) == Field::kLoss) has_loss = true;
  }
  return true;
}

}  // namespace

std::optional<Field> field_of_name(std::string_view name) {
  const auto found = find_field([&](const auto& f) { return name == f.name; });
  if (!found) return std::nullopt;
  return static_cast<Field>(*found);
}

std::optional<StepLine> parse_step_line(std::string_view words) {
  StepLine line;
  line.values.fill(std::numeric_limits<float>::quiet_NaN());
  Cursor cursor(words);
  bool has_loss = false;
  const bool whole = cursor.take_object(
      [&](std::string_view key) { return take_member(cursor, key, line, has_loss); });
  if (!whole || !cursor.at_end() || line.step < 0 || !has_loss) return std::nullopt;
  const float seconds = line.at(Field::kStepTime);
  if (seconds > 0)
    line.at(Field::kTokensPerSecond) =
        static_cast<float>(line.tokens / static_cast<double>(seconds));
  return line;
}

}  // namespace lockstep::cli
