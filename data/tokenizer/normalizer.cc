#include "data/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "data/tokenizer/char_map.h"
#include "data/tokenizer/definitions.h"
#include "data/tokenizer/splitter.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/unicode_differences.h"
#include "data/tokenizer/vocabulary.h"

namespace lockstep::data {
namespace {

using nlohmann::json;
using Normalizing = Result<std::unique_ptr<const Normalizer>>;

// One that cannot fail.
class PlainNormalizer final : public Normalizer {
 public:
  using Change = std::function<void(std::string&)>;
  PlainNormalizer(Change change, bool cuts_beginning)
      : change_(std::move(change)), cuts_beginning_(cuts_beginning) {}
  Result<void> apply(std::string& text) const override {
    change_(text);
    return {};
  }
  bool may_cut_beginning() const override { return cuts_beginning_; }

 private:
  const Change change_;
  const bool cuts_beginning_;
};

Normalizing plain(PlainNormalizer::Change change, bool cuts_beginning = false) {
  return std::unique_ptr<const Normalizer>(
      std::make_unique<PlainNormalizer>(std::move(change), cuts_beginning));
}

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<const Normalizer>> stages)
      : stages_(std::move(stages)) {}
  Result<void> apply(std::string& text) const override {
    for (const auto& stage : stages_) LOCKSTEP_RETURN_IF_ERROR(stage->apply(text));
    return {};
  }
  bool may_cut_beginning() const override {
    return std::any_of(stages_.begin(), stages_.end(),
                       [](const auto& stage) { return stage->may_cut_beginning(); });
  }

 private:
  const std::vector<std::unique_ptr<const Normalizer>> stages_;
};

// Puts `content` where a regular expression matches.
class RegexReplacer final : public Normalizer {
 public:
  RegexReplacer(std::unique_ptr<PreTokenizer> matches, std::string content)
      : matches_(std::move(matches)), content_(std::move(content)) {}
  Result<void> apply(std::string& text) const override {
    SplitBudget budget(text.size());
    std::vector<Piece> matches;
    LOCKSTEP_RETURN_IF_ERROR(
        matches_->split(text, {0, static_cast<uint32_t>(text.size())}, budget, matches));
    if (matches.empty()) return {};
    std::string out;
    size_t given = 0;
    for (const Piece& match : matches) {
      out.append(text, given, match.begin - given);
      out += content_;
      given = match.end;
    }
    out.append(text, given);
    text = std::move(out);
    return {};
  }
  bool may_cut_beginning() const override { return content_.empty(); }

 private:
  const std::unique_ptr<PreTokenizer> matches_;
  const std::string content_;
};

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

// The form of `text`, appended to `out`.
void append_form(std::string_view text, unsigned options, std::string& out) {
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &made,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
  if (size < 0) {  // bytes that are no UTF-8
    out += text;
    return;
  }
  out.append(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
  std::free(made);
}

void to_form(std::string& text, unsigned options) {
  if (is_ascii(text)) return;
  std::string out;
  const char* const end = text.data() + text.size();
  const char* begin = text.data();
  for (const char* at = begin; at < end;) {
    const CodePoint point = code_point_at(at, end);
    if (is_in(kNotYetNormalized, point.value)) {  // a stranger between two texts
      append_form({begin, static_cast<size_t>(at - begin)}, options, out);
      append_utf8(point.value, out);
      begin = at + point.bytes;
    }
    at += point.bytes;
  }
  append_form({begin, static_cast<size_t>(end - begin)}, options, out);
  text = std::move(out);
}

// `change(code point, out)` of each character; bytes that are no UTF-8 stay.
template <typename Change>
void for_each_character(std::string& text, const Change& change) {
  std::string out;
  out.reserve(text.size());
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const CodePoint point = code_point_at(at, end);
    const bool valid = point.bytes > 1 || static_cast<uint8_t>(*at) < 0x80;
    if (valid)
      change(point, out);
    else
      out += *at;
    at += point.bytes;
  }
  text = std::move(out);
}

// Control characters are left out, characters that are like spaces become spaces.
void apply_nmt(std::string& text) {
  const auto is_lost = [](uint32_t c) {
    return (c >= 0x1 && c <= 0x8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f ||
           c == 0x8f || c == 0x9f;
  };
  const auto is_space = [](uint32_t c) {
    return c == 0x9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
           (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xfeff || c == 0xfffd;
  };
  for_each_character(text, [&](const CodePoint& point, std::string& out) {
    if (!is_lost(point.value)) append_utf8(is_space(point.value) ? ' ' : point.value, out);
  });
}

void to_lower(std::string& text) {
  for_each_character(text, [](const CodePoint& point, std::string& out) {
    if (point.value == 0x130) {  // the one that becomes two characters
      out += "i\u0307";
      return;
    }
    auto small = utf8proc_tolower(static_cast<utf8proc_int32_t>(point.value));
    for (const Capitals& each : kNewCapitals)
      if (point.value >= each.first && point.value <= each.last) small += each.to_small;
    append_utf8(static_cast<uint32_t>(small), out);
  });
}

void strip_accents(std::string& text) {
  for_each_character(text, [](const CodePoint& point, std::string& out) {
    const bool mark = (point.classes & kMark) != 0 ? !is_in(kNotYetMarks, point.value)
                                                   : is_in(kOnceMarks, point.value);
    if (!mark) append_utf8(point.value, out);
  });
}

void strip(std::string& text, bool left, bool right) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  while (left && begin < end) {
    const CodePoint point = code_point_at(begin, end);
    if ((point.classes & kSpace) == 0) break;
    begin += point.bytes;
  }
  while (right && begin < end) {
    const CodePoint point = code_point_before(begin, end);
    if ((point.classes & kSpace) == 0) break;
    end -= point.bytes;
  }
  text = std::string(begin, end);
}

void replace_all(std::string& text, const std::string& words, const std::string& content) {
  std::string out;
  size_t given = 0;
  for (size_t at = 0; (at = text.find(words, given)) != text.npos; given = at + words.size()) {
    out.append(text, given, at - given);
    out += content;
  }
  out.append(text, given);
  text = std::move(out);
}

Normalizing read_replace(const json& stage) {
  auto content = stage.at("content").get<std::string>();
  const json& pattern = stage.at("pattern");
  if (pattern.contains("Regex")) {
    LOCKSTEP_TRY(auto matches, make_regex_splitter(pattern["Regex"].get<std::string>(),
                                                   SplitBehavior::kRemoved, true));
    return std::unique_ptr<const Normalizer>(
        std::make_unique<RegexReplacer>(std::move(matches), std::move(content)));
  }
  const auto words = pattern.at("String").get<std::string>();
  if (words.empty()) return unsupported("normalizer Replace", "of an empty text");
  const bool cuts = content.empty();
  return plain([words, content](std::string& text) { replace_all(text, words, content); }, cuts);
}

Normalizing read_precompiled(const json& stage) {
  const json& encoded = stage.at("precompiled_charsmap");
  std::string blob;
  if (!decode_base64(encoded.get<std::string>(), blob))
    return Error{Code::kConfig, "normalizer Precompiled: precompiled_charsmap is not base64"};
  LOCKSTEP_TRY(CharMap map, CharMap::create(blob));
  return plain([map = std::move(map)](std::string& text) { text = map.apply(text); });
}

Normalizing read_sequence(const json& stage) {
  std::vector<std::unique_ptr<const Normalizer>> stages;
  for (const json& one : stage.at("normalizers")) {
    LOCKSTEP_TRY(auto read, make_normalizer(one));
    stages.push_back(std::move(read));
  }
  return std::unique_ptr<const Normalizer>(std::make_unique<NormalizerSequence>(std::move(stages)));
}

std::optional<unsigned> form_of(const std::string& type) {
  if (type == "NFC") return UTF8PROC_COMPOSE;
  if (type == "NFD") return UTF8PROC_DECOMPOSE;
  if (type == "NFKC") return UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
  if (type == "NFKD") return UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  return std::nullopt;
}

}  // namespace

Normalizing make_normalizer(const json& stage) {
  const std::string type = type_of(stage);
  if (type == "Sequence") return read_sequence(stage);
  if (type == "Replace") return read_replace(stage);
  if (type == "Precompiled") return read_precompiled(stage);
  if (type == "Nmt") return plain(apply_nmt, true);
  if (type == "Lowercase") return plain(to_lower);
  if (type == "StripAccents") return plain(strip_accents, true);
  if (type == "Prepend")
    return plain([words = stage.at("prepend").get<std::string>()](std::string& text) {
      if (!text.empty()) text.insert(0, words);
    });
  if (type == "Strip") {
    const bool left = flag(stage, "strip_left", true), right = flag(stage, "strip_right", true);
    return plain([left, right](std::string& text) { strip(text, left, right); }, left);
  }
  if (const auto form = form_of(type))
    return plain([options = *form](std::string& text) { to_form(text, options); });
  return unsupported("normalizer", type);
}

}  // namespace lockstep::data
