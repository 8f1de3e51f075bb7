#include "checkpoint/codec/plane_frame.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "base/hash.h"
#include "checkpoint/codec/chunk_codec.h"
#include "tests/support/each_target.h"

namespace lockstep::checkpoint {
namespace {

using Bytes = std::vector<std::byte>;
using Word = std::function<uint32_t(uint64_t)>;  // of an index

Bytes chunk_of(size_t words, const Word& word) {
  Bytes bytes(4 * words);
  for (size_t i = 0; i < words; ++i) {
    const uint32_t value = word(i);
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }
uint32_t random(uint64_t i) { return static_cast<uint32_t>(mix64(i)); }
uint32_t weight(uint64_t i) {  // as trained: noise below, few exponents
  return bits(static_cast<float>(static_cast<int64_t>(mix64(i) >> 16) - (int64_t{1} << 47)) *
              1e-16f);
}
uint32_t rows_seen(uint64_t i) { return i / 512 % 3 == 0 ? weight(i) : 0; }

struct Pattern {
  const char* name;
  Word word;
};
std::vector<Pattern> patterns() {
  return {{"random", random},
          {"weights", weight},
          {"rows never seen", rows_seen},
          {"zeros", [](uint64_t) { return 0u; }},
          {"constant", [](uint64_t) { return bits(1.5f); }},
          {"NaN payloads", [](uint64_t i) { return 0x7f800001u | (random(i) & 0x003fffffu); }},
          {"denormals", [](uint64_t i) { return random(i) >> 10; }},
          {"bf16 values", [](uint64_t i) { return weight(i) & 0xffff0000u; }},
          {"low byte constant", [](uint64_t i) { return random(i) & 0xffffff00u; }},
          {"middle bytes constant", [](uint64_t i) { return random(i) & 0xff0000ffu; }},
          {"counter", [](uint64_t i) { return static_cast<uint32_t>(i); }}};
}

// Empty when the frame does not fit into `capacity`.
Bytes frame_of(PlaneFrameWriter& writer, const Bytes& chunk, size_t noise, size_t capacity) {
  Bytes out(capacity);
  if (!writer.begin(chunk.size(), noise, out)) return {};
  for (size_t at = 0; at < chunk.size(); at += 4096)
    writer.add(std::span(chunk).subspan(at, std::min<size_t>(4096, chunk.size() - at)));
  out.resize(writer.finish());
  return out;
}

Bytes shuffled(const Bytes& chunk) {
  Bytes planes(chunk.size());
  shuffle_words(chunk, planes);
  return planes;
}

// Any zstd decoder, and ours.
void expect_reads_back(const Bytes& frame, const Bytes& chunk) {
  ASSERT_EQ(ZSTD_getFrameContentSize(frame.data(), frame.size()), chunk.size());
  ASSERT_EQ(ZSTD_findFrameCompressedSize(frame.data(), frame.size()), frame.size()) << "one frame";
  Bytes planes(chunk.size());
  ASSERT_EQ(ZSTD_decompress(planes.data(), planes.size(), frame.data(), frame.size()),
            planes.size());
  EXPECT_EQ(planes, shuffled(chunk));
  PlaneFrameReader reader;
  ASSERT_TRUE(reader.open(frame, chunk.size()).ok());
  Bytes back(chunk.size());
  for (size_t at = 0; at < back.size(); at += 1000)
    reader.take(std::span(back).subspan(at, std::min<size_t>(1000, back.size() - at)));
  EXPECT_EQ(back, chunk);
}

// Whatever number of planes is left raw, at lengths where raw blocks begin in one plane and end in
// the next.
TEST(PlaneFrame, AnyZstdDecoderReadsEveryPattern) {
  PlaneFrameWriter writer;
  for (const Pattern& pattern : patterns())
    for (size_t words : {1u, 2u, 63u, 4096u, 50000u, 131072u, 150001u, 262144u})
      for (size_t noise = 0; noise < kPlanes; ++noise) {
        SCOPED_TRACE(pattern.name + std::string(" ") + std::to_string(words) + " words, " +
                     std::to_string(noise) + " raw");
        const Bytes chunk = chunk_of(words, pattern.word);
        expect_reads_back(frame_of(writer, chunk, noise, chunk.size() * 2 + 200), chunk);
      }
}

TEST(PlaneFrame, PlanesAreChosenByTheirBytes) {
  const auto chosen = [](const Word& word, size_t words = kChunkElements) {
    return noise_planes(chunk_of(words, word));
  };
  EXPECT_EQ(chosen(random), 4u);
  EXPECT_EQ(chosen(weight), 3u);
  EXPECT_EQ(chosen(weight, 1000), 3u);
  EXPECT_EQ(chosen(rows_seen), 0u);
  EXPECT_EQ(chosen([](uint64_t) { return 0u; }), 0u);
  EXPECT_EQ(chosen([](uint64_t i) { return random(i) & 0xffff00ffu; }), 1u);
  EXPECT_EQ(chosen([](uint64_t i) { return random(i) & 0xff00ffffu; }), 2u);
  EXPECT_EQ(chosen(random, 10), 0u) << "too few to tell";
}

TEST(PlaneFrame, ZerosCostNextToNothing) {
  ChunkEncoder encoder(Codec::kZstd);
  EncodedChunk out;
  const Bytes zeros = chunk_of(kChunkElements, [](uint64_t) { return 0u; });
  encoder.encode(zeros, zeros.size(), true, out);
  EXPECT_LT(out.stored_bytes, 300u);
  const Bytes third = chunk_of(kChunkElements, rows_seen);  // a third of the rows was seen
  encoder.encode(third, third.size(), true, out);
  EXPECT_LT(out.stored_bytes, third.size() * 33 / 100);
}

TEST(PlaneFrame, DoesNotFitIsNoFrame) {
  PlaneFrameWriter writer;
  const Bytes chunk = chunk_of(50000, weight);
  EXPECT_TRUE(frame_of(writer, chunk, 3, 1000).empty());
  EXPECT_TRUE(frame_of(writer, chunk, 3, 3 * 50000 + 500).empty());
  expect_reads_back(frame_of(writer, chunk, 3, chunk.size()), chunk);  // and is none the worse
}

TEST(PlaneFrame, WithoutForcedLiteralsLevel1IsUsed) {
  PlaneFrameWriter writer(/*literal_mode=*/99);  // this library refuses it
  const Bytes chunk = chunk_of(kChunkElements, weight);
  const Bytes frame = frame_of(writer, chunk, 3, chunk.size());
  expect_reads_back(frame, chunk);
  EXPECT_LT(static_cast<double>(frame.size()), 0.9 * static_cast<double>(chunk.size()));
  EXPECT_NE(frame, frame_of(*std::make_unique<PlaneFrameWriter>(), chunk, 3, chunk.size()));
}

TEST(PlaneFrame, WritersAndHistoryDoNotChangeTheBytes) {
  PlaneFrameWriter used, fresh;
  const Bytes chunk = chunk_of(kChunkElements, weight);
  for (const Pattern& pattern : patterns())
    frame_of(used, chunk_of(100000, pattern.word), noise_planes(chunk) % 4, 1 << 20);
  EXPECT_EQ(frame_of(used, chunk, 3, chunk.size()), frame_of(fresh, chunk, 3, chunk.size()));
}

// Frames of zstd itself: matches that reach back into raw blocks, checksums, several levels.
TEST(PlaneFrame, FramesOfOthersAreRead) {
  for (int level : {-100, -1, 1, 3, 9})
    for (const Pattern& pattern : patterns()) {
      SCOPED_TRACE(pattern.name + std::string(" level ") + std::to_string(level));
      const Bytes chunk = chunk_of(100000, pattern.word), planes = shuffled(chunk);
      Bytes frame(ZSTD_compressBound(planes.size()));
      frame.resize(ZSTD_compress(frame.data(), frame.size(), planes.data(), planes.size(), level));
      expect_reads_back(frame, chunk);
    }
  Bytes repeated = chunk_of(100000, random);  // a noise plane that repeats one before it
  for (size_t i = 0; i < repeated.size(); i += 4) repeated[i + 3] = repeated[i];
  const Bytes planes = shuffled(repeated);
  Bytes frame(ZSTD_compressBound(planes.size()));
  frame.resize(ZSTD_compress(frame.data(), frame.size(), planes.data(), planes.size(), 1));
  ASSERT_LT(frame.size(), planes.size() * 4 / 5);
  expect_reads_back(frame, repeated);
}

// Our reader and zstd agree on every damaged frame: both refuse it, or both give the same bytes.
// That those are wrong is for CRC32C to find.
TEST(PlaneFrame, DamagedFramesAreReadAsZstdReadsThem) {
  PlaneFrameWriter writer;
  PlaneFrameReader reader;
  uint64_t key = 1;
  const auto draw = [&](size_t below) { return static_cast<size_t>(mix64(key++) % below); };
  int refused = 0, accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    const size_t words = std::array{1u, 700u, 3000u, 45000u}[draw(4)];
    const Bytes chunk = chunk_of(words, draw(2) == 0 ? Word(weight) : Word(rows_seen));
    Bytes frame = frame_of(writer, chunk, draw(4), 2 * chunk.size() + 200);
    for (size_t damage = 0; damage <= draw(3); ++damage) {
      const size_t near = draw(2) == 0 ? std::min<size_t>(frame.size(), 40) : frame.size();
      frame[draw(near)] = static_cast<std::byte>(draw(256));
    }
    if (draw(4) == 0) frame.resize(draw(frame.size()) + 1);
    Bytes planes(chunk.size()), back(chunk.size());
    const bool read =
        ZSTD_decompress(planes.data(), planes.size(), frame.data(), frame.size()) == chunk.size();
    const auto opened = reader.open(frame, chunk.size());
    ASSERT_EQ(opened.ok(), read) << "round " << round;
    (read ? accepted : refused) += 1;
    if (!read) {
      EXPECT_EQ(opened.error().code, Code::kCorrupt);
      continue;
    }
    reader.take(back);
    ASSERT_EQ(shuffled(back), planes) << "round " << round;
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(accepted, 500);
}

TEST(BytePlanes, EveryFormAgrees) {
  for (size_t words : {0u, 1u, 15u, 16u, 31u, 32u, 33u, 95u, 1000u}) {
    const Bytes chunk = chunk_of(words, random);
    on_each_target([&] {
      Bytes planes(chunk.size()), back(chunk.size());
      std::byte* const p = planes.data();
      split_planes(chunk.data(), words, {p, p + words, p + 2 * words, p + 3 * words});
      for (size_t i = 0; i < chunk.size(); ++i) ASSERT_EQ(p[i % 4 * words + i / 4], chunk[i]);
      join_planes({p, p + words, p + 2 * words, p + 3 * words}, words, back.data());
      EXPECT_EQ(back, chunk) << words;
    });
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
