#include "data/tokenizer/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "data/tokenizer/scanner.h"
#include "data/tokenizer/unicode.h"

namespace lockstep::data {

namespace {

constexpr size_t kJitStackBytes = size_t{4} << 20;
// See BoundedSearch.
constexpr uint64_t kFewSteps = 256, kMostSteps = 0xffffffff;
constexpr size_t kWindowBytes = 4096;

// Gives out matches and what lies between them as the behaviour wants them.
class PieceWriter {
 public:
  PieceWriter(SplitBehavior behavior, bool invert, std::vector<Piece>& pieces)
      : behavior_(behavior), invert_(invert), pieces_(pieces) {}

  void add(uint32_t begin, uint32_t end, bool match) {
    if (begin == end) return;
    match = match != invert_;
    const bool touches = any_ && pieces_.back().end == begin;
    bool joined = false;
    switch (behavior_) {
      case SplitBehavior::kIsolated: break;
      case SplitBehavior::kRemoved:
        if (match) return;
        break;
      case SplitBehavior::kContiguous: joined = touches && match == last_was_match_; break;
      case SplitBehavior::kMergedWithPrevious: joined = touches && match && !last_was_match_; break;
      case SplitBehavior::kMergedWithNext: joined = touches && !match && last_was_match_; break;
    }
    if (joined) {
      pieces_.back().end = end;
    } else {
      pieces_.push_back({begin, end});
    }
    any_ = true;
    last_was_match_ = match;
  }

 private:
  const SplitBehavior behavior_;
  const bool invert_;
  std::vector<Piece>& pieces_;
  bool any_ = false, last_was_match_ = false;
};

struct Pcre2Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
template <typename T>
using Pcre2Ptr = std::unique_ptr<T, Pcre2Free>;

// White space is Unicode's property White_Space, as in the reference engines: PCRE2's own \s has
// U+180E as well. As the inside of a character class, and what it leaves.
constexpr const char* kSpaces =
    R"(\x{9}-\x{d} \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr const char* kNoSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

std::string with_our_spaces(const std::string& pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's' || escaped == 'S') {
        const char* const set = escaped == 's' ? kSpaces : kNoSpaces;
        out += in_class ? set : text("[", set, "]");
      } else {
        out += {c, escaped};
      }
      continue;
    }
    // A "]" that opens a class is one of its members, and "[" inside one as well.
    if (c == '[' && !in_class) {
      in_class = true;
      out += c;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') out += pattern[++i];
      continue;
    }
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

std::string pcre2_message(int code) {
  std::array<unsigned char, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// What one thread needs to match.
struct Matcher {
  Pcre2Ptr<pcre2_match_data> match{pcre2_match_data_create(1, nullptr)};
  Pcre2Ptr<pcre2_match_context> context{pcre2_match_context_create(nullptr)};
  Pcre2Ptr<pcre2_jit_stack> stack{pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr)};
  Matcher() { pcre2_jit_stack_assign(context.get(), nullptr, stack.get()); }
};

// Finds the matches of an expression and takes the work off a text's budget. PCRE2 limits the steps
// that it takes from one start alone, and says neither how many it took nor at which start it gave
// up. So:
// 1. Most starts need few steps. One call tries all starts of a window with kFewSteps each, free of
//    charge: that is at most kFewSteps a byte.
// 2. Where a start needs more, those of its window are tried one by one, and what a try may take
//    is charged before it. A start that needs more than its try is tried again with twice as many;
//    the next one begins with half of what the last one got.
// 3. Without budget the search ends with PCRE2_ERROR_MATCHLIMIT.
class BoundedSearch {
 public:
  BoundedSearch(const pcre2_code* code, std::string_view text, SplitBudget& budget,
                Matcher& matcher)
      : code_(code), text_(text), budget_(budget), matcher_(matcher) {}

  // The first match that starts at `from` or behind it; what pcre2_match returns.
  int find(size_t from) {
    while (from < text_.size()) {
      if (from >= window_end_) open_window(from);
      const int found = alone_ ? try_alone(from) : match(from);
      if (found == PCRE2_ERROR_MATCHLIMIT && !alone_) {
        alone_ = true;
        continue;
      }
      if (found != PCRE2_ERROR_NOMATCH) return found;
      from = alone_ ? start_behind(from) : window_end_;
    }
    return PCRE2_ERROR_NOMATCH;
  }

 private:
  void open_window(size_t from) {
    window_end_ = std::min(from + kWindowBytes, text_.size());
    // Never inside a character.
    for (int k = 0; k < 3 && window_end_ < text_.size(); ++k)
      window_end_ += (text_[window_end_] & 0xc0) == 0x80 ? 1 : 0;
    alone_ = false;
    set_limits(window_end_, kFewSteps);
  }
  // Starts are tried in front of `end`.
  void set_limits(size_t end, uint64_t steps) {
    pcre2_set_offset_limit(matcher_.context.get(), end - 1);
    pcre2_set_match_limit(matcher_.context.get(), static_cast<uint32_t>(steps));
  }
  int match(size_t from) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), from, 0,
                       matcher_.match.get(), matcher_.context.get());
  }
  int try_alone(size_t from) {
    for (steps_ = std::max(kFewSteps, steps_ / 2); budget_.steps_left > 0; steps_ *= 2) {
      steps_ = std::min({steps_, budget_.steps_left, kMostSteps});
      budget_.steps_left -= steps_;
      set_limits(start_behind(from), steps_);
      const int found = match(from);
      if (found != PCRE2_ERROR_MATCHLIMIT) return found;
    }
    return PCRE2_ERROR_MATCHLIMIT;
  }
  size_t start_behind(size_t from) const {
    return from + code_point_at(text_.data() + from, text_.data() + text_.size()).bytes;
  }

  const pcre2_code* const code_;
  const std::string_view text_;
  SplitBudget& budget_;
  Matcher& matcher_;
  size_t window_end_ = 0;
  bool alone_ = false;  // the starts of the window are tried one by one
  uint64_t steps_ = 0;  // of the last one that was
};

class Pcre2Splitter final : public PreTokenizer {
 public:
  Pcre2Splitter(std::string pattern, SplitBehavior behavior, bool invert, Pcre2Ptr<pcre2_code> code)
      : pattern_(std::move(pattern)),
        behavior_(behavior),
        invert_(invert),
        code_(std::move(code)) {}

  Result<void> split(std::string_view text, Piece range, SplitBudget& budget,
                     std::vector<Piece>& pieces) const override {
    thread_local Matcher matcher;
    const uint32_t size = range.end - range.begin;
    BoundedSearch search(code_.get(), text.substr(range.begin, size), budget, matcher);
    PieceWriter writer(behavior_, invert_, pieces);
    uint32_t given = 0;  // up to here it is in `pieces`
    for (uint32_t from = 0; from < size;) {
      const int found = search.find(from);
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0)
        return Error{Code::kConfig, text_of_failure(found, text.substr(range.begin + from, 40))};
      const size_t* const offsets = pcre2_get_ovector_pointer(matcher.match.get());
      const auto begin = static_cast<uint32_t>(offsets[0]);
      const auto end = static_cast<uint32_t>(offsets[1]);
      if (end <= from && begin == end) {  // an empty match cuts nothing
        from += code_point_at(text.data() + range.begin + from, text.data() + range.end).bytes;
        continue;
      }
      writer.add(range.begin + given, range.begin + begin, false);
      writer.add(range.begin + begin, range.begin + end, true);
      given = from = end;
    }
    writer.add(range.begin + given, range.end, false);
    return {};
  }

  std::string description() const override {
    std::array<char, 32> unicode{};
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, unicode.data());
    return text("pcre2 unicode ", unicode.data(), " ", static_cast<int>(behavior_), invert_, " ",
                pattern_);
  }

 private:
  std::string text_of_failure(int code, std::string_view where) const {
    if (code == PCRE2_ERROR_MATCHLIMIT)
      return text("the tokenizer's pattern ", pattern_, " takes more than ",
                  SplitBudget::kStepsPerByte, " steps for each byte of a text (and ",
                  SplitBudget::kStepsPerText, " for the text), at or after \"", where,
                  "\"; rewrite it without repeats that can match the same characters in many ways, "
                  "or use another tokenizer");
    return text("the tokenizer's pattern ", pattern_, " failed (", pcre2_message(code),
                ") at or after \"", where, "\"");
  }
  const std::string pattern_;
  const SplitBehavior behavior_;
  const bool invert_;
  const Pcre2Ptr<pcre2_code> code_;
};

class DigitSplitter final : public PreTokenizer {
 public:
  explicit DigitSplitter(bool individual) : individual_(individual) {}
  Result<void> split(std::string_view text, Piece range, SplitBudget& /*budget*/,
                     std::vector<Piece>& pieces) const override {
    const char* const end = text.data() + range.end;
    uint32_t begin = range.begin;
    bool in_number = false;
    for (uint32_t at = range.begin; at < range.end;) {
      const CodePoint point = code_point_at(text.data() + at, end);
      const bool number = (point.classes & kNumber) != 0;
      if (at > begin && (number != in_number || (number && individual_))) {
        pieces.push_back({begin, at});
        begin = at;
      }
      in_number = number;
      at += point.bytes;
    }
    if (begin < range.end) pieces.push_back({begin, range.end});
    return {};
  }
  std::string description() const override { return text("digits ", individual_); }

 private:
  const bool individual_;
};

class SequenceSplitter final : public PreTokenizer {
 public:
  explicit SequenceSplitter(std::vector<std::unique_ptr<PreTokenizer>> stages)
      : stages_(std::move(stages)) {}
  Result<void> split(std::string_view text, Piece range, SplitBudget& budget,
                     std::vector<Piece>& pieces) const override {
    std::vector<Piece> now{range}, next;
    for (const auto& stage : stages_) {
      next.clear();
      for (const Piece& piece : now)
        LOCKSTEP_RETURN_IF_ERROR(stage->split(text, piece, budget, next));
      now.swap(next);
    }
    pieces.insert(pieces.end(), now.begin(), now.end());
    return {};
  }
  std::string description() const override {
    std::string all = "sequence";
    for (const auto& stage : stages_) all += "\n" + stage->description();
    return all;
  }

 private:
  const std::vector<std::unique_ptr<PreTokenizer>> stages_;
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> make_pcre2_splitter(const std::string& pattern,
                                                          SplitBehavior behavior, bool invert) {
  int error = 0;
  size_t offset = 0;
  const std::string ours = with_our_spaces(pattern);
  Pcre2Ptr<pcre2_code> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(ours.data()), ours.size(),
                                          PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF |
                                              PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                                          &error, &offset, nullptr));
  if (!code)
    return Error{Code::kConfig, text("the pattern \"", pattern, "\" does not compile: ",
                                     pcre2_message(error), " at offset ", offset)};
  // Without the just-in-time compiler (another CPU) the same pattern is interpreted.
  static_cast<void>(pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE));
  return std::unique_ptr<PreTokenizer>(
      std::make_unique<Pcre2Splitter>(pattern, behavior, invert, std::move(code)));
}

Result<std::unique_ptr<PreTokenizer>> make_regex_splitter(const std::string& pattern,
                                                          SplitBehavior behavior, bool invert) {
  // The known patterns match every character, so these two say the same.
  const bool plain = (behavior == SplitBehavior::kIsolated && !invert) ||
                     (behavior == SplitBehavior::kRemoved && invert);
  if (plain)
    if (auto scanner = make_scanner(pattern)) return scanner;
  return make_pcre2_splitter(pattern, behavior, invert);
}

std::unique_ptr<PreTokenizer> make_digit_splitter(bool individual) {
  return std::make_unique<DigitSplitter>(individual);
}

std::unique_ptr<PreTokenizer> make_sequence(std::vector<std::unique_ptr<PreTokenizer>> stages) {
  if (stages.size() == 1) return std::move(stages[0]);
  return std::make_unique<SequenceSplitter>(std::move(stages));
}

}  // namespace lockstep::data
