// Damaged tokenizer definitions: refused, or a tokenizer that keeps its word.
#pragma once

#include "tests/unit/data/damage.h"
#include "tests/unit/data/tokenizer_definitions.h"

namespace lockstep::data {

// What is asked of a tokenizer that a damaged definition still makes.
inline void expect_sane(const Tokenizer& tokenizer, const std::string& which) {
  for (const char* words : {"hello world 123 <|endoftext|>", "Grüße \xff\xfe\n\n\t  x", ""}) {
    std::vector<uint32_t> ids;
    if (!tokenizer.encode(words, ids).ok()) continue;
    for (const uint32_t id : ids) ASSERT_LT(id, tokenizer.vocab_size()) << which;
    EXPECT_TRUE(tokenizer.decode(ids, true).ok()) << which;
  }
  EXPECT_LT(tokenizer.end_of_document(), tokenizer.vocab_size()) << which;
  EXPECT_EQ(tokenizer.hash().size(), 16u) << which;
}

// Calls parse(damaged) for `count` kinds of damage to `definition`; returns how many of them still
// made a tokenizer.
template <typename Parse>
uint64_t count_made(const std::string& definition, uint64_t count, uint64_t seed, Parse parse) {
  uint64_t made = 0;
  for (uint64_t number = 0; number < count; ++number) {
    const auto tokenizer = parse(Damage(number, seed).of(definition));
    if (!tokenizer.ok()) {
      EXPECT_FALSE(tokenizer.error().message.empty()) << damage_name(number, seed);
      continue;
    }
    ++made;
    expect_sane(*tokenizer.value(), damage_name(number, seed));
  }
  return made;
}

// `definition` as it is, and with `count` kinds of damage. That the damage leaves enough tokenizers
// is asked of the usual seed alone, where the answer is always the same: with a fresh one it would
// be a matter of luck.
template <typename Parse>
void fuzz_tokenizer(const std::string& definition, uint64_t count, Parse parse) {
  const auto whole = parse(definition);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  expect_sane(*whole.value(), "no damage");
  EXPECT_GT(count_made(definition, count, kUsualSeed, parse), count / 200)
      << "the damage is too heavy to say much";
  if (base_seed() != kUsualSeed) count_made(definition, count, base_seed(), parse);
}

}  // namespace lockstep::data
