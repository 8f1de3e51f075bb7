#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/file_system.h"

namespace lockstep {
namespace {

std::vector<std::byte> noise(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(mix64(i));
  return bytes;
}

TEST(Hash, Xxh3KnownAnswers) {
  EXPECT_EQ(xxh3_64(std::string_view("")), 0x2d06800538d394c2ULL);
  EXPECT_EQ(xxh3_64(std::string_view("abc")), 0x78af5f94892f3950ULL);
  EXPECT_NE(xxh3_64(std::string_view("abc"), 1), xxh3_64(std::string_view("abc"), 2));
  EXPECT_EQ(hex64(0x2d06800538d394c2ULL), "2d06800538d394c2");
  EXPECT_EQ(hex64(10), "000000000000000a");
}

TEST(Hash, StreamEqualsOneGo) {
  const std::vector<std::byte> bytes = noise(100'000);
  Xxh3Stream stream;
  const std::span<const std::byte> all(bytes);
  size_t at = 0;
  for (size_t piece = 1; at < all.size(); piece = piece * 3 + 1) {
    const size_t size = std::min(piece, all.size() - at);
    stream.update(all.subspan(at, size));
    at += size;
  }
  EXPECT_EQ(stream.digest(), xxh3_64(all));
  stream.reset();
  stream.update(all.first(77));
  EXPECT_EQ(stream.digest(), xxh3_64(all.first(77)));
}

TEST(Hash, Crc32cKnownAnswers) {  // RFC 3720, B.4
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43u);
}

// By its definition, bit after bit.
uint32_t crc32c_of_bits(std::span<const std::byte> bytes, uint32_t crc) {
  crc = ~crc;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

TEST(Hash, Crc32cIsItsDefinitionAtEverySizeAndOffset) {
  const std::vector<std::byte> bytes = noise(300);
  const std::span<const std::byte> all(bytes);
  for (size_t start = 0; start < 9; ++start)
    for (size_t size = 0; size + start <= all.size(); ++size)
      ASSERT_EQ(crc32c(all.subspan(start, size)), crc32c_of_bits(all.subspan(start, size), 0));
}

TEST(Hash, Crc32cIsItsDefinitionAtTheSizesOfBlocks) {
  const std::vector<std::byte> bytes = noise(40'000);
  const std::span<const std::byte> all(bytes);
  for (size_t size : {511, 512, 513, 1000, 8183, 8184, 8192, 16367, 16384, 39'999})
    for (uint32_t start : {0u, 1u, 0xdeadbeefu})
      EXPECT_EQ(crc32c(all.first(size), start), crc32c_of_bits(all.first(size), start)) << size;
}

TEST(Hash, Crc32cContinues) {
  const std::vector<std::byte> bytes = noise(1000);
  const std::span<const std::byte> all(bytes);
  for (const size_t cut : {0, 1, 7, 8, 500, 999, 1000})
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), crc32c(all));
}

void expect_words(const Philox4& got, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  EXPECT_EQ(got.word[0], a);
  EXPECT_EQ(got.word[1], b);
  EXPECT_EQ(got.word[2], c);
  EXPECT_EQ(got.word[3], d);
}

TEST(Hash, PhiloxKnownAnswersOfRandom123) {  // tests/kat_vectors, philox4x32 10
  expect_words(philox(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  expect_words(philox(~0ULL, ~0ULL, ~0ULL), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  // counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0
  expect_words(philox(0x299f31d0a4093822ULL, 0x0370734413198a2eULL, 0x85a308d3243f6a88ULL),
               0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(Hash, PurposesHaveKeysOfTheirOwn) {
  EXPECT_EQ(purpose_key(42, "init"), purpose_key(42, "init"));
  EXPECT_NE(purpose_key(42, "init"), purpose_key(43, "init"));
  EXPECT_NE(purpose_key(42, "init"), purpose_key(42, "order"));
}

TEST(Hash, Mix64IsSplitMix64) {  // first output of splitmix64.c for state 0
  static_assert(mix64(0x9e3779b97f4a7c15ULL) == 0xe220a8397b1dcdafULL);
}

}  // namespace
}  // namespace lockstep
