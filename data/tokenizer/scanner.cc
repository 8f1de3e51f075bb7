#include "data/tokenizer/scanner.h"

#include <string>

#include "data/tokenizer/unicode.h"

namespace lockstep::data {

namespace {

enum class Words {
  kSpaceFirst,    //  ?\p{L}+ (and numbers alike): GPT-2
  kAnyFirst,      // [^\r\n\p{L}\p{N}]?\p{L}+: Llama 3, Qwen, cl100k
  kAnyFirstCased  // the two alternatives that cut before a capital: tekken, o200k
};

// What tells the families apart.
struct Rules {
  Words words;
  int max_digits;           // of one number; 0: no limit
  bool any_case;            // contractions also as 'S, 'LL
  bool contractions_after;  // at the end of a word instead of before it
  bool contractions;
  bool slash_after_signs;  // [\r\n/]* instead of [\r\n]*
  bool last_spaces_whole;  // \s++$ comes before \s*[\r\n]
};
constexpr Rules kGpt2{Words::kSpaceFirst, 0, false, false, true, false, false};
constexpr Rules kLlama3{Words::kAnyFirst, 3, true, false, true, false, false};
constexpr Rules kQwen2{Words::kAnyFirst, 1, true, false, true, false, false};
constexpr Rules kCl100k{Words::kAnyFirst, 3, true, false, true, false, true};
constexpr Rules kTekken{Words::kAnyFirstCased, 1, false, false, false, true, false};
constexpr Rules kO200k{Words::kAnyFirstCased, 3, true, true, true, true, false};

constexpr uint8_t kUpperRun = kUpper | kOtherLetter | kMark;
constexpr uint8_t kLowerRun = kLower | kOtherLetter | kMark;
constexpr uint8_t kNoSign = kSpace | kLetter | kNumber;  // what a run of signs does not hold

bool is_newline(char c) { return c == '\n' || c == '\r'; }

template <Rules kRules>
class Scanner {
 public:
  Scanner(const char* begin, const char* end) : end_(end), classes_(unicode_classes().data()) {
    static_cast<void>(begin);
  }

  // The end of the piece that starts at `at`. Requires: at < end.
  const char* piece_end(const char* at) const {
    if constexpr (kRules.contractions && !kRules.contractions_after)
      if (*at == '\'')
        if (const char* after = contraction_end(at)) return after;
    const CodePoint first = point(at);
    const char* const next = at + first.bytes;
    if constexpr (kRules.words == Words::kSpaceFirst) {
      return space_first(at, first, next);
    } else {
      if (const char* after = word_end(at, first, next)) return after;
      if (first.classes & kNumber) return digits_end(next);
      if (const char* after = signs_end(at, first, next)) return after;
      return spaces_end(at);
    }
  }

 private:
  CodePoint point(const char* at) const {
    const auto byte = static_cast<uint8_t>(*at);
    if (byte < 0x80) return {byte, 1, classes_[byte]};
    return code_point_at(at, end_);
  }
  // The end of the run of code points with one of `wanted`.
  const char* run_of(uint8_t wanted, const char* at) const {
    while (at < end_) {
      const CodePoint next = point(at);
      if (!(next.classes & wanted)) break;
      at += next.bytes;
    }
    return at;
  }
  const char* run_of_signs(const char* at) const {
    while (at < end_) {
      const CodePoint next = point(at);
      if (next.classes & kNoSign) break;
      at += next.bytes;
    }
    return at;
  }

  // After "'s" and the like, or null. Requires: *at == '\''.
  const char* contraction_end(const char* at) const {
    if (end_ - at < 2) return nullptr;
    const auto lower = [&](char c) {
      return kRules.any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char a = lower(at[1]);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if (end_ - at < 3) return nullptr;
    const char b = lower(at[2]);
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    // U+017F, the long s, is an s when case does not count.
    if (kRules.any_case && at[1] == '\xc5' && at[2] == '\xbf') return at + 3;
    return nullptr;
  }

  const char* space_first(const char* at, CodePoint first, const char* next) const {
    if (*at == ' ' && next < end_) {
      const CodePoint second = point(next);
      if (second.classes & kSpace) return spaces_end(at);
      first = second;
      next += second.bytes;
    }
    if (first.classes & kLetter) return run_of(kLetter, next);
    if (first.classes & kNumber) return run_of(kNumber, next);
    if (!(first.classes & kSpace)) return run_of_signs(next);
    return spaces_end(at);
  }

  const char* digits_end(const char* next) const {
    for (int count = 1; count < kRules.max_digits && next < end_; ++count) {
      const CodePoint digit = point(next);
      if (!(digit.classes & kNumber)) break;
      next += digit.bytes;
    }
    return next;
  }

  // A word with the one character that may stand before it, or null.
  const char* word_end(const char* at, CodePoint first, const char* next) const {
    if constexpr (kRules.words == Words::kAnyFirst) {
      if (first.classes & kLetter) return run_of(kLetter, next);
      if ((first.classes & kNumber) || is_newline(*at) || next == end_) return nullptr;
      const CodePoint second = point(next);
      if (!(second.classes & kLetter)) return nullptr;
      return run_of(kLetter, next + second.bytes);
    } else {
      const char* const after = cased_word_end(at, first, next);
      if constexpr (kRules.contractions_after)
        if (after && after < end_ && *after == '\'')
          if (const char* contracted = contraction_end(after)) return contracted;
      return after;
    }
  }

  const char* cased_word_end(const char* at, CodePoint first, const char* next) const {
    const bool may_lead = !(first.classes & (kLetter | kNumber)) && !is_newline(*at);
    // In the order in which the alternatives are tried.
    if (may_lead)
      if (const char* after = ends_in_lower(next)) return after;
    if (const char* after = ends_in_lower(at)) return after;
    if (may_lead)
      if (const char* after = starts_with_upper(next)) return after;
    return starts_with_upper(at);
  }

  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ from `at`, with its backtracking.
  const char* ends_in_lower(const char* at) const {
    const char* after_last_both = nullptr;  // after the last one so far that is in both sets
    while (at < end_) {
      const CodePoint next = point(at);
      if (!(next.classes & kUpperRun)) {
        if (next.classes & kLowerRun) return run_of(kLowerRun, at);
        break;
      }
      at += next.bytes;
      if (next.classes & kLowerRun) after_last_both = at;
    }
    return after_last_both;
  }
  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*
  const char* starts_with_upper(const char* at) const {
    const char* const after = run_of(kUpperRun, at);
    return after == at ? nullptr : run_of(kLowerRun, after);
  }

  // " ?[^\s\p{L}\p{N}]+[\r\n]*", or null.
  const char* signs_end(const char* at, CodePoint first, const char* next) const {
    if (*at == ' ') {
      if (next == end_) return nullptr;
      first = point(next);
      next += first.bytes;
    }
    if (first.classes & kNoSign) return nullptr;
    next = run_of_signs(next);
    while (next < end_ && (is_newline(*next) || (kRules.slash_after_signs && *next == '/'))) ++next;
    return next;
  }

  // White space: up to its last line end; else all but the last one, which goes to what follows.
  // Requires: a space at `at`.
  const char* spaces_end(const char* at) const {
    const char* after = at;
    const char* before_last = at;
    const char* after_newline = nullptr;
    while (after < end_) {
      const CodePoint next = point(after);
      if (!(next.classes & kSpace)) break;
      before_last = after;
      after += next.bytes;
      if (is_newline(*before_last)) after_newline = after;
    }
    if constexpr (kRules.words != Words::kSpaceFirst) {
      if (kRules.last_spaces_whole && after == end_) return after;
      if (after_newline) return after_newline;
    }
    return after == end_ || before_last == at ? after : before_last;
  }

  const char* const end_;
  const uint8_t* const classes_;
};

template <Rules kRules>
class ScanningSplitter final : public PreTokenizer {
 public:
  explicit ScanningSplitter(std::string_view pattern) : pattern_(pattern) {}
  Result<void> split(std::string_view text, Piece range, SplitBudget& /*budget*/,
                     std::vector<Piece>& pieces) const override {
    const char* const begin = text.data();
    const char* const end = begin + range.end;
    const Scanner<kRules> scanner(begin, end);
    for (const char* at = begin + range.begin; at < end;) {
      const char* const after = scanner.piece_end(at);
      pieces.push_back({static_cast<uint32_t>(at - begin), static_cast<uint32_t>(after - begin)});
      at = after;
    }
    return {};
  }
  std::string description() const override { return "scan " + pattern_; }

 private:
  const std::string pattern_;
};

template <Rules kRules>
std::unique_ptr<PreTokenizer> scanner_of(std::string_view pattern) {
  return std::make_unique<ScanningSplitter<kRules>>(pattern);
}

}  // namespace

std::unique_ptr<PreTokenizer> make_scanner(std::string_view pattern) {
  if (pattern == kGpt2Pattern || pattern == kR50kPattern) return scanner_of<kGpt2>(kGpt2Pattern);
  if (pattern == kLlama3Pattern) return scanner_of<kLlama3>(pattern);
  if (pattern == kQwen2Pattern) return scanner_of<kQwen2>(pattern);
  if (pattern == kCl100kPattern) return scanner_of<kCl100k>(pattern);
  if (pattern == kTekkenPattern) return scanner_of<kTekken>(pattern);
  if (pattern == kO200kPattern) return scanner_of<kO200k>(pattern);
  return nullptr;
}

std::unique_ptr<PreTokenizer> make_gpt2_splitter() { return make_scanner(kGpt2Pattern); }

}  // namespace lockstep::data
