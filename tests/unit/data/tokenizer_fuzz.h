// Damaged tokenizer definitions: refused, or a tokenizer that keeps its word.
#pragma once

#include "tests/unit/data/damage.h"
#include "tests/unit/data/tokenizer_definitions.h"

namespace lockstep::data {

// What is asked of a tokenizer that a damaged definition still makes.
inline void expect_sane(const Tokenizer& tokenizer, uint64_t number) {
  for (const char* words : {"hello world 123 <|endoftext|>", "Grüße \xff\xfe\n\n\t  x", ""}) {
    std::vector<uint32_t> ids;
    if (!tokenizer.encode(words, ids).ok()) continue;
    for (const uint32_t id : ids) ASSERT_LT(id, tokenizer.vocab_size()) << damage_name(number);
    EXPECT_TRUE(tokenizer.decode(ids, true).ok()) << damage_name(number);
  }
  EXPECT_LT(tokenizer.end_of_document(), tokenizer.vocab_size());
  EXPECT_EQ(tokenizer.hash().size(), 16u);
}

// Calls parse(damaged) for `count` kinds of damage to `definition`.
template <typename Parse>
void fuzz_tokenizer(const std::string& definition, uint64_t count, Parse parse) {
  uint64_t made = 0;
  for (uint64_t number = 0; number < count; ++number) {
    const auto tokenizer = parse(Damage(number).of(definition));
    if (!tokenizer.ok()) {
      EXPECT_FALSE(tokenizer.error().message.empty());
      continue;
    }
    ++made;
    expect_sane(*tokenizer.value(), number);
  }
  EXPECT_GT(made, count / 200) << "the damage is too heavy to say much";
}

}  // namespace lockstep::data
