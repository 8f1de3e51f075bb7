#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/scanner.h"
#include "data/tokenizer/unicode.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;

Result<void> split_all(const PreTokenizer& splitter, std::string_view text,
                       std::vector<Piece>& pieces) {
  SplitBudget budget(text.size());
  return splitter.split(text, {0, static_cast<uint32_t>(text.size())}, budget, pieces);
}

std::vector<std::string> pieces_of(const PreTokenizer& splitter, std::string_view text) {
  std::vector<Piece> pieces;
  EXPECT_TRUE(split_all(splitter, text, pieces).ok());
  std::vector<std::string> words;
  for (const Piece& piece : pieces)
    words.emplace_back(text.substr(piece.begin, piece.end - piece.begin));
  return words;
}

// Text that is hard to cut, of the characters on which the patterns turn. All of them are older
// than the Unicode of any PCRE2 that this is built with.
std::string hard_text(uint64_t seed) {
  static const std::vector<std::string> kParts = {
      "a",      "b",  "Z",    "s",      "S",      "re",     "LL",     "'",      " ",
      "  ",     "\n", "\r\n", "\t",     "1",      "23",     "/",      "!",      "é",
      "ß",      "ſ",  "Ж",    "ж",      "中",     "文",     "ʰ",      "ǅ",      "\u0301",
      "\u0903", "①",  "½",    "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e", "\u200b",
      "😀",      "𝔸",  "_",    "'ſ",     "'Ve"};
  std::string text;
  for (uint64_t i = 0; i < 1 + mix64(seed) % 24; ++i)
    text += kParts[mix64(seed * 64 + i + 1) % kParts.size()];
  return text;
}

TEST(Scanner, CutsWherePcre2Cuts) {
  for (const std::string_view pattern :
       {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern, kTekkenPattern, kR50kPattern, kCl100kPattern,
        kO200kPattern}) {
    const auto scanner = make_scanner(pattern);
    ASSERT_TRUE(scanner);
    const auto pcre2 = make_pcre2_splitter(std::string(pattern), SplitBehavior::kIsolated, false);
    ASSERT_TRUE(pcre2.ok());
    for (uint64_t seed = 0; seed < 20000; ++seed) {
      const std::string text = hard_text(seed);
      ASSERT_EQ(pieces_of(*scanner, text), pieces_of(*pcre2.value(), text)) << pattern << text;
    }
  }
}

TEST(Scanner, EveryByteIsInExactlyOnePiece) {
  for (const std::string_view pattern : {kGpt2Pattern, kLlama3Pattern, kTekkenPattern}) {
    const auto scanner = make_scanner(pattern);
    for (uint64_t seed = 0; seed < 2000; ++seed) {
      std::string bytes;
      for (uint64_t i = 0; i < seed % 50; ++i)
        bytes += static_cast<char>(mix64(seed * 64 + i) >> 13);
      std::string joined;
      for (const std::string& piece : pieces_of(*scanner, bytes)) joined += piece;
      ASSERT_EQ(joined, bytes);
    }
  }
}

TEST(RegexSplitter, Behaviors) {
  const auto cut = [](SplitBehavior behavior, bool invert) {
    const auto splitter = make_regex_splitter("-", behavior, invert);
    return pieces_of(*splitter.value(), "the-final--countdown");
  };
  EXPECT_THAT(cut(SplitBehavior::kIsolated, false),
              ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(cut(SplitBehavior::kRemoved, false), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(cut(SplitBehavior::kRemoved, true), ElementsAre("-", "-", "-"));
  EXPECT_THAT(cut(SplitBehavior::kMergedWithPrevious, false),
              ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(cut(SplitBehavior::kMergedWithNext, false),
              ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(cut(SplitBehavior::kContiguous, false),
              ElementsAre("the", "-", "final", "--", "countdown"));
}

TEST(RegexSplitter, APatternThatDoesNotCompileIsNamed) {
  const auto splitter = make_regex_splitter("a(b", SplitBehavior::kIsolated, false);
  ASSERT_FALSE(splitter.ok());
  EXPECT_THAT(splitter.error().message, testing::HasSubstr("\"a(b\" does not compile"));
}

TEST(RegexSplitter, EmptyMatchesCutNothing) {
  const auto splitter = make_regex_splitter("x*", SplitBehavior::kIsolated, false);
  EXPECT_THAT(pieces_of(*splitter.value(), "éaxxb"), ElementsAre("éa", "xx", "b"));
}

std::string times(size_t count, std::string_view part) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += part;
  return text;
}

// From each letter 2^18 ways are tried: little for one start, too much for all of them.
TEST(RegexSplitter, WorkIsLimitedForTheWholeText) {
  const std::string pattern = "(?:a?){18}a{18}[XY]", text = times(5000, "a");
  const auto splitter = make_regex_splitter(pattern, SplitBehavior::kIsolated, false);
  ASSERT_TRUE(splitter.ok());
  std::vector<Piece> pieces;
  const auto done = split_all(*splitter.value(), text, pieces);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, Code::kConfig);
  EXPECT_THAT(done.error().message, testing::HasSubstr(pattern + " takes more than 2000 steps"));
  EXPECT_THAT(done.error().message, testing::HasSubstr("or use another tokenizer"));
}

// The pieces of a stage, and the parts between added tokens, share the budget of their text.
TEST(RegexSplitter, StagesShareTheBudget) {
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  stages.push_back(make_digit_splitter(true));
  stages.push_back(std::move(
      make_regex_splitter("(?:a?){12}a{12}[XY]", SplitBehavior::kIsolated, false).value()));
  const auto sequence = make_sequence(std::move(stages));
  const std::string text = times(10, times(30, "a") + "1");
  std::vector<Piece> pieces;
  SplitBudget budget(text.size());
  const uint64_t all = budget.steps_left;
  ASSERT_TRUE(sequence->split(text, {0, 31}, budget, pieces).ok());
  const uint64_t each = all - budget.steps_left;
  EXPECT_GT(each, 0u);
  ASSERT_TRUE(sequence->split(text, {31, 310}, budget, pieces).ok());
  EXPECT_EQ(all - budget.steps_left, 10 * each);
  budget.steps_left = 0;
  EXPECT_FALSE(sequence->split(text, {0, 31}, budget, pieces).ok());
}

std::string million_of(std::string_view part) { return times(1'000'000 / part.size(), part); }

TEST(RegexSplitter, KnownPatternsNeedFewSteps) {
  for (const std::string_view pattern :
       {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern, kTekkenPattern, kR50kPattern, kCl100kPattern,
        kO200kPattern}) {
    const auto scanner = make_scanner(pattern);
    const auto pcre2 = make_pcre2_splitter(std::string(pattern), SplitBehavior::kIsolated, false);
    ASSERT_TRUE(pcre2.ok());
    for (const std::string_view part : {"a", "A", " ", "1", "\n", "\r\n", "!", "'", "/", "\t ", "é",
                                        "\u0301", "中", "\u2028", " \n ", "aA", "a ", "\xff"}) {
      const std::string text = million_of(part);
      const Piece whole{0, static_cast<uint32_t>(text.size())};
      std::vector<Piece> wanted, found;
      SplitBudget budget(text.size());
      const uint64_t all = budget.steps_left;
      ASSERT_TRUE(scanner->split(text, whole, budget, wanted).ok());
      const auto done = pcre2.value()->split(text, whole, budget, found);
      ASSERT_TRUE(done.ok()) << done.error().message;
      ASSERT_EQ(found.size(), wanted.size()) << pattern << " on " << part;
      EXPECT_LE(all - budget.steps_left, 3 * text.size()) << pattern << " on " << part;
    }
  }
}

TEST(RegexSplitter, TheSquareOfALongRunIsWithinTheBudget) {
  const auto splitter = make_regex_splitter(R"(\s+$)", SplitBehavior::kIsolated, false);
  EXPECT_EQ(pieces_of(*splitter.value(), times(15'000, " ") + "1").size(), 1u);
}

// 4096 bytes of starts are tried at a time; where one of them needs many steps, one by one.
TEST(RegexSplitter, MatchesFarApartAndBehindHardPlacesAreFound) {
  const auto cut = [](const char* pattern, const std::string& text) {
    const auto splitter = make_regex_splitter(pattern, SplitBehavior::kIsolated, false);
    std::vector<size_t> sizes;
    for (const std::string& piece : pieces_of(*splitter.value(), text))
      sizes.push_back(piece.size());
    return sizes;
  };
  EXPECT_THAT(cut("-", "x" + times(10'000, "é") + "-"), ElementsAre(20'001, 1));
  EXPECT_THAT(cut("(?<=é)-", times(4096, "-") + "é-" + times(5000, "-")),
              ElementsAre(4098, 1, 5000));
  const std::string hard = "(?:a?){9}a{9}X|b";  // 2^9 ways from each "a"
  EXPECT_THAT(
      cut(hard.c_str(), "b" + times(20, "a") + times(5000, "y") + "b" + times(9, "a") + "X"),
      ElementsAre(1, 5020, 1, 10));
  EXPECT_THAT(cut(hard.c_str(), times(20, "aé") + "b" + times(5000, "c") + times(18, "a") + "Xb"),
              ElementsAre(60, 1, 5000, 19, 1));
}

TEST(DigitSplitter, AloneAndInRuns) {
  EXPECT_THAT(pieces_of(*make_digit_splitter(true), "a12 ½x"),
              ElementsAre("a", "1", "2", " ", "½", "x"));
  EXPECT_THAT(pieces_of(*make_digit_splitter(false), "a12 ½x"),
              ElementsAre("a", "12", " ", "½", "x"));
}

TEST(AddedTokens, LongestFirstWithFlags) {
  const AddedTokens tokens({{.id = 1, .content = "<a>"},
                            {.id = 2, .content = "<a>>"},
                            {.id = 3, .content = "<l>", .strips_left = true},
                            {.id = 4, .content = "<r>", .strips_right = true},
                            {.id = 5, .content = "word", .single_word = true},
                            {.id = 6, .content = "<s>", .special = true}});
  const auto parts_of = [&](std::string_view text, SpecialNames names = SpecialNames::kAreTokens) {
    std::vector<TextPart> parts;
    tokens.split(text, {0, static_cast<uint32_t>(text.size())}, names, parts);
    std::string shown;
    for (const TextPart& part : parts)
      shown += (part.token ? std::to_string(*part.token) : std::string("-")) + "[" +
               std::string(text.substr(part.range.begin, part.range.end - part.range.begin)) + "]";
    return shown;
  };
  EXPECT_EQ(parts_of("x<a>>y<a>"), "-[x]2[<a>>]-[y]1[<a>]");
  EXPECT_EQ(parts_of("x \n<l> y"), "-[x]3[ \n<l>]-[ y]");
  EXPECT_EQ(parts_of("<r> \n y"), "4[<r> \n ]-[y]");
  EXPECT_EQ(parts_of("word swords word"), "5[word]-[ swords ]5[word]");
  EXPECT_EQ(parts_of("<s>", SpecialNames::kAreText), "-[<s>]");
  EXPECT_EQ(parts_of("<"), "-[<]");
}

// Bytes, and merges of random pairs: short pieces and long ones go two ways, with one result.
TEST(BpeModel, TheHeapAndTheLoopAgree) {
  BpeModel::Definition definition;
  for (int byte = 0; byte < 256; ++byte)
    definition.token_bytes.emplace_back(1, static_cast<char>(byte));
  for (uint64_t i = 0; i < 400; ++i) {
    const auto pick = [&](uint64_t k) {
      const uint64_t dice = mix64(i * 2 + k) % (4 + i);
      return static_cast<uint32_t>(dice < 4 ? 'a' + dice : 252 + dice);
    };
    const Merge merge{pick(0), pick(1), static_cast<uint32_t>(definition.token_bytes.size())};
    definition.token_bytes.push_back(definition.token_bytes[merge.left] +
                                     definition.token_bytes[merge.right]);
    definition.merges.push_back(merge);
  }
  auto model = BpeModel::create(definition);
  ASSERT_TRUE(model.ok());
  PieceCache cache;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    // A byte that is in no merge parts a long piece into ones as short as the loop takes.
    std::string piece;
    std::vector<uint32_t> wanted, whole, cached;
    for (uint64_t part = 0; part < 4; ++part) {
      std::string word;
      for (uint64_t i = 0; i < mix64(seed * 8 + part) % 40; ++i)
        word += static_cast<char>('a' + mix64(seed * 512 + part * 64 + i) % 4);
      model->encode_piece(word, wanted);
      wanted.push_back('|');
      piece += word + "|";
      cache.encode(model.value(), word, 0, static_cast<uint32_t>(word.size()), cached);
      cached.push_back('|');
    }
    model->encode_piece(piece, whole);
    ASSERT_EQ(whole, wanted) << piece;
    ASSERT_EQ(cached, wanted) << piece;
  }
}

TEST(BpeModel, EqualTokensDoNotLengthenASearch) {
  BpeModel::Definition definition;
  definition.whole_pieces_first = true;
  for (int byte = 0; byte < 256; ++byte)
    definition.token_bytes.emplace_back(1, static_cast<char>(byte));
  definition.token_bytes.resize(5000, "ab");
  auto model = BpeModel::create(definition);
  ASSERT_TRUE(model.ok());
  EXPECT_LT(model->longest_search(), 20u);
  std::vector<uint32_t> ids;
  model->encode_piece("ab", ids);
  EXPECT_THAT(ids, ElementsAre(256));  // the first of them
}

TEST(Unicode, CodePointsAndTheirClasses) {
  const auto at = [](std::string_view text) {
    return code_point_at(text.data(), text.data() + text.size());
  };
  EXPECT_EQ(at("😀").value, 0x1f600u);
  EXPECT_EQ(at("\xf0\x9f\x98").bytes, 1u);
  EXPECT_EQ(at("\xed\xa0\x80").bytes, 1u);  // a surrogate
  EXPECT_EQ(at("\xc0\x80").bytes, 1u);      // overlong
  EXPECT_EQ(at("ǅ").classes, kUpper | kWord);
  EXPECT_EQ(at("中").classes, kOtherLetter | kWord);
  EXPECT_EQ(at("½").classes, kNumber);
  for (uint32_t code = 0; code < kCodePoints; code += 7) {
    if (code >= 0xd800 && code < 0xe000) continue;
    std::string utf8 = "x";
    append_utf8(code, utf8);
    EXPECT_EQ(at(utf8.substr(1)).value, code);
    EXPECT_EQ(code_point_before(utf8.data(), utf8.data() + utf8.size()).value, code);
  }
}

}  // namespace
}  // namespace lockstep::data
