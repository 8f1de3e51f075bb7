// Damaged input that passes through other people's decoders: gzip, zstd, rank files in base64,
// SentencePiece models. Refused or served as it is; no crash, no wait without end.
#include <cstring>

#include "data/prepare/byte_source.h"
#include "tests/unit/data/compressed.h"
#include "tests/unit/data/memory_files.h"
#include "tests/unit/data/rank_definitions.h"
#include "tests/unit/data/sentencepiece_model.h"
#include "tests/unit/data/tokenizer_fuzz.h"

namespace lockstep::data {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;  // a few edits of a small file give no more

// All bytes of a file with `contents`, or its error.
Result<std::string> decompressed(const std::string& contents) {
  MemoryFiles files;
  files.put("a", contents);
  LOCKSTEP_TRY(const auto source,
               ByteSource::open(files, {"a", static_cast<int64_t>(contents.size())}));
  std::string all;
  for (size_t before = 1; before != all.size() && all.size() < kMostBytes;) {
    before = all.size();
    LOCKSTEP_RETURN_IF_ERROR(source->append_to(all));
  }
  return all;
}

std::string words_to_compress() {
  std::string words;
  for (uint64_t i = 0; i < 400; ++i)
    words += text("word ", mix64(i) % 97, i % 7 == 0 ? ".\n" : " ");
  return words;
}

using Compress = std::string (*)(const std::string&);
class CompressedFuzz : public testing::TestWithParam<std::pair<const char*, Compress>> {};

TEST_P(CompressedFuzz, IsRefusedOrReadAsItIs) {
  const auto [kind, compress] = GetParam();
  const std::string words = words_to_compress(), whole = compress(words);
  const std::string members = compress("first ") + compress(words);
  int read = 0, refused = 0;
  for (uint64_t number = 0; number < 20'000; ++number) {
    Damage damage(number);
    const bool two = damage.draw(2) == 0;
    const std::string damaged = damage.of(two ? members : whole);
    const auto found = decompressed(damaged);
    if (!found.ok()) {
      ++refused;
      EXPECT_EQ(found.error().code, Code::kConfig) << damage_name(number);
      EXPECT_TRUE(found.error().message.starts_with("a: ")) << damage_name(number);
      continue;
    }
    ++read;
    EXPECT_LT(found.value().size(), kMostBytes) << damage_name(number);
    // gzip has a checksum: what it gives is some of what went in (a member may be lost, or come
    // twice), unless the damage made it plain text.
    if (std::strcmp(kind, "gzip") == 0 && damaged.starts_with("\x1f\x8b")) {
      const std::string possible = text("first ", "first ", words, "first ", words, words);
      EXPECT_NE(possible.find(found.value()), std::string::npos) << damage_name(number);
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(read, 20);
}
INSTANTIATE_TEST_SUITE_P(Kinds, CompressedFuzz,
                         testing::Values(std::pair<const char*, Compress>{"gzip", gzip},
                                         std::pair<const char*, Compress>{"zstd", zstd}),
                         [](const auto& kind) { return std::string(kind.param.first); });

TEST(TokenizerFuzz, Tekken) {
  fuzz_tokenizer(tekken(290).dump(), 4000, parse_tekken);
  // Where the vocabulary's text is left out, the damage falls on the rest.
  const std::string whole = tekken(290).dump();
  const size_t vocab = whole.find("\"vocab\"");
  ASSERT_NE(vocab, std::string::npos);
  fuzz_tokenizer(whole.substr(0, vocab), 4000,
                 [&](const std::string& head) { return parse_tekken(head + whole.substr(vocab)); });
}

// A family is told by its number of ranks, so the file is large; all damage falls on its first
// lines.
TEST(TokenizerFuzz, Tiktoken) {
  const std::string whole = rank_lines(50256);
  constexpr size_t kHead = 4000;
  fuzz_tokenizer(whole.substr(0, kHead), 200, [&](const std::string& head) {
    return parse_tiktoken(head + whole.substr(kHead));
  });
  for (uint64_t number = 0; number < 20'000; ++number) {
    std::string bytes;
    if (decode_base64(Damage(number).of("SGVsbG8gd29ybGQ="), bytes)) {
      EXPECT_LT(bytes.size(), 500u) << damage_name(number);
    }
  }
}

class SentencePieceFuzz : public testing::TestWithParam<int> {};

TEST_P(SentencePieceFuzz, IsRefusedOrKeepsItsWord) {
  const std::string model = sentencepiece_model(GetParam());
  const auto whole = parse_sentencepiece(model);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  const auto ids = ids_of(*whole.value(), "hello world");
  ASSERT_EQ(whole.value()->decode(ids, false).value(), "hello world");
  fuzz_tokenizer(model, 3000,
                 [](const std::string& damaged) { return parse_sentencepiece(damaged); });
  // Damage to the pieces that are no bytes, and to what follows them.
  const size_t tail = model.find("<0xFF>");
  fuzz_tokenizer(model.substr(tail), 3000, [&](const std::string& damaged) {
    return parse_sentencepiece(model.substr(0, tail) + damaged);
  });
}
INSTANTIATE_TEST_SUITE_P(ModelTypes, SentencePieceFuzz, testing::Values(1, 2),
                         [](const auto& type) {
                           return std::string(type.param == 1 ? "unigram" : "bpe");
                         });

}  // namespace
}  // namespace lockstep::data
