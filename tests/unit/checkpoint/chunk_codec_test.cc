#include "checkpoint/codec/chunk_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "checkpoint/record/state.h"
#include "checkpoint/shard_file/chunk_pipeline.h"
#include "tests/support/each_target.h"

namespace lockstep::checkpoint {
namespace {

std::vector<std::byte> noise(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(mix64(seed + i) & 0xff);
  return bytes;
}

std::vector<std::byte> weights(size_t count) {
  std::vector<std::byte> bytes(count * 4);
  for (size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(mix64(i) >> 40) * 1e-9f;
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}

// HDF5 1.10's H5_checksum_fletcher32, word by word.
uint32_t fletcher32_by_the_book(std::span<const std::byte> bytes) {
  uint32_t sum1 = 0, sum2 = 0;
  size_t at = 0, words = bytes.size() / 2;
  const auto fold = [](uint32_t sum) { return (sum & 0xffff) + (sum >> 16); };
  while (words > 0) {
    const size_t run = std::min<size_t>(words, 360);
    for (size_t i = 0; i < run; ++i, at += 2) {
      sum1 += static_cast<uint32_t>(bytes[at]) << 8 | static_cast<uint32_t>(bytes[at + 1]);
      sum2 += sum1;
    }
    words -= run;
    sum1 = fold(sum1);
    sum2 = fold(sum2);
  }
  if (bytes.size() % 2 != 0) {
    sum1 += static_cast<uint32_t>(bytes[at]) << 8;
    sum2 += sum1;
    sum1 = fold(sum1);
    sum2 = fold(sum2);
  }
  return fold(sum2) << 16 | fold(sum1);
}

TEST(ChunkCodec, Fletcher32IsThatOfHdf5AtEveryLength) {
  const auto bytes = noise(300000, 7);
  on_each_target([&] {
    for (size_t size = 0; size < 700; ++size)
      ASSERT_EQ(fletcher32(std::span(bytes).first(size)),
                fletcher32_by_the_book(std::span(bytes).first(size)))
          << size;
  });
  for (size_t size : {8191u, 8192u, 8193u, 8224u, 16384u, 65537u, 300000u})
    EXPECT_EQ(fletcher32(std::span(bytes).first(size)),
              fletcher32_by_the_book(std::span(bytes).first(size)))
        << size;
  for (std::byte value : {std::byte{0}, std::byte{0xff}}) {
    const std::vector<std::byte> same(100001, value);
    on_each_target([&] { EXPECT_EQ(fletcher32(same), fletcher32_by_the_book(same)); });
  }
}

TEST(ChunkCodec, Fletcher32OverPieces) {
  const auto bytes = noise(70001, 9);
  on_each_target([&] {
    Fletcher32 sum;
    size_t at = 0;
    for (size_t size = 2; at + size < bytes.size(); at += size, size = size * 3 / 2 / 2 * 2 + 2)
      sum.add(std::span(bytes).subspan(at, size));
    sum.add(std::span(bytes).subspan(at));
    EXPECT_EQ(sum.digest(), fletcher32_by_the_book(bytes));
  });
}

TEST(ChunkCodec, ShuffleAndBack) {
  for (size_t count : {0u, 1u, 3u, 15u, 16u, 17u, 1000u}) {
    const auto in = noise(count * 4, count);
    std::vector<std::byte> planes(in.size()), back(in.size());
    shuffle_words(in, planes);
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(planes[i % 4 * count + i / 4], in[i]);
    unshuffle_words(planes, back);
    EXPECT_EQ(back, in);
    shuffle_words(in, planes, 2);
    for (size_t i = 0; i < in.size(); ++i)
      ASSERT_EQ(planes[i % 2 * (in.size() / 2) + i / 2], in[i]);
    unshuffle_words(planes, back, 2);
    EXPECT_EQ(back, in);
  }
}

// Numbers as weights are, in bf16; odd counts too.
TEST(ChunkCodec, Bf16ComesBackAndCompresses) {
  for (Codec codec : {Codec::kZstd, Codec::kNone, Codec::kGzip})
    for (size_t count : {1u, 5u, 4097u, 262144u}) {
      const auto fp32 = weights(count);
      std::vector<std::byte> raw(2 * count), back(raw.size());
      for (size_t i = 0; i < raw.size(); ++i) raw[i] = fp32[4 * (i / 2) + 2 + i % 2];
      ChunkEncoder encoder(codec);
      EncodedChunk chunk;
      encoder.encode(raw, raw.size(), true, chunk, 77, Dtype::kBf16);
      EXPECT_EQ(chunk.fingerprint, fingerprint(raw, 77, Dtype::kBf16));
      const auto stored = std::span(chunk.stored).first(chunk.stored_bytes);
      const auto sums =
          ChunkDecoder(codec).decode(stored, chunk.filter_mask, back, 77, SIZE_MAX, Dtype::kBf16);
      ASSERT_TRUE(sums.ok()) << sums.error().message;
      EXPECT_EQ(sums.value().fingerprint, chunk.fingerprint);
      EXPECT_EQ(back, raw);
      if (codec != Codec::kNone && count == 262144u) {
        EXPECT_EQ(chunk.filter_mask, 0u);
        EXPECT_LT(static_cast<double>(chunk.stored_bytes), 0.8 * static_cast<double>(raw.size()));
      }
    }
}

TEST(ChunkCodec, EveryCodecGivesTheBytesBack) {
  for (Codec codec : {Codec::kZstd, Codec::kNone, Codec::kGzip})
    for (size_t count : {1u, 5u, 4096u, 262144u})
      for (bool random : {false, true}) {
        const auto raw = random ? noise(count * 4, 3) : weights(count);
        ChunkEncoder encoder(codec);
        EncodedChunk chunk;
        encoder.encode(raw, raw.size(), true, chunk);
        const auto stored = std::span(chunk.stored).first(chunk.stored_bytes);
        EXPECT_TRUE(fletcher32_matches(stored));
        EXPECT_EQ(chunk.crc32c, crc32c(stored));
        EXPECT_EQ(chunk.xxh3, xxh3_64(raw));
        std::vector<std::byte> back(raw.size());
        ChunkDecoder decoder(codec);
        ASSERT_TRUE(decoder.decode(stored, chunk.filter_mask, back).ok());
        EXPECT_EQ(back, raw);
      }
}

TEST(ChunkCodec, WeightsCompressAndNoiseIsStoredRaw) {
  ChunkEncoder encoder(Codec::kZstd);
  EncodedChunk chunk;
  const auto good = weights(kChunkElements);
  encoder.encode(good, good.size(), true, chunk);
  EXPECT_EQ(chunk.filter_mask, 0u);
  EXPECT_LT(static_cast<double>(chunk.stored_bytes), 0.9 * static_cast<double>(good.size()));
  const auto bad = noise(good.size(), 1);
  encoder.encode(bad, bad.size(), true, chunk);
  EXPECT_EQ(chunk.filter_mask, kRawMask);
  EXPECT_EQ(chunk.stored_bytes, bad.size() + 4);
}

TEST(ChunkCodec, APartialChunkIsPaddedWithZeros) {
  const auto raw = weights(10);
  ChunkEncoder encoder(Codec::kNone);
  EncodedChunk chunk;
  encoder.encode(raw, 64, true, chunk);
  std::vector<std::byte> back(64);
  ChunkDecoder decoder(Codec::kNone);
  ASSERT_TRUE(
      decoder.decode(std::span(chunk.stored).first(chunk.stored_bytes), chunk.filter_mask, back)
          .ok());
  EXPECT_TRUE(std::equal(raw.begin(), raw.end(), back.begin()));
  for (size_t i = raw.size(); i < back.size(); ++i) EXPECT_EQ(back[i], std::byte{0});
}

TEST(ChunkCodec, SumsAreThoseOfTheRawBytesWithoutPadding) {
  const auto raw = weights(3000);
  for (Codec codec : {Codec::kZstd, Codec::kNone, Codec::kGzip}) {
    ChunkEncoder encoder(codec);
    EncodedChunk chunk;
    encoder.encode(raw, 16384, true, chunk, 12345);
    EXPECT_EQ(chunk.fingerprint, fingerprint(raw, 12345));
    std::vector<std::byte> back(16384);
    const auto sums = ChunkDecoder(codec).decode(std::span(chunk.stored).first(chunk.stored_bytes),
                                                 chunk.filter_mask, back, 12345, 12000);
    ASSERT_TRUE(sums.ok());
    EXPECT_EQ(sums.value().fingerprint, chunk.fingerprint);
    EXPECT_EQ(sums.value().xxh3, chunk.xxh3);
    EXPECT_EQ(chunk.xxh3, xxh3_64(back));
  }
}

TEST(ChunkCodec, DamageIsAnErrorNeverACrash) {
  const auto raw = weights(5000);
  for (Codec codec : {Codec::kZstd, Codec::kGzip}) {
    ChunkEncoder encoder(codec);
    EncodedChunk chunk;
    encoder.encode(raw, raw.size(), true, chunk);
    ASSERT_EQ(chunk.filter_mask, 0u);
    ChunkDecoder decoder(codec);
    std::vector<std::byte> back(raw.size());
    for (size_t at = 0; at < chunk.stored_bytes; at += 97) {
      std::vector<std::byte> damaged(chunk.stored.begin(),
                                     chunk.stored.begin() + static_cast<long>(chunk.stored_bytes));
      damaged[at] ^= std::byte{0x10};
      const bool decoded = decoder.decode(damaged, 0, back).ok();
      EXPECT_TRUE(!fletcher32_matches(damaged) && (!decoded || crc32c(damaged) != chunk.crc32c));
    }
    EXPECT_FALSE(decoder.decode(std::span(chunk.stored).first(2), 0, back).ok());
    EXPECT_FALSE(decoder.decode(std::span(chunk.stored).first(100), 0, back).ok());
    EXPECT_FALSE(decoder.decode(std::span(chunk.stored).first(100), kRawMask, back).ok());
    EXPECT_FALSE(decoder.decode(std::span(chunk.stored).first(100), 4, back).ok());
  }
}

TEST(ChunkPipeline, ChunksComeBackInOrderAndAlikeForAnyThreadCount) {
  const auto good = weights(4096 * 20), bad = noise(4096 * 4 * 20, 5);
  std::vector<uint32_t> sums[2];
  for (size_t run = 0; run < 2; ++run) {
    ChunkPipeline pipeline(Codec::kZstd, run == 0 ? 1 : 7, 0);
    const auto take = [&] {
      sums[run].push_back(pipeline.front().bytes.crc32c);
      pipeline.pop();
    };
    for (int64_t dataset = 0; dataset < 2; ++dataset)
      for (int64_t i = 0; i < 20; ++i) {
        if (pipeline.full()) take();
        const auto& from = dataset == 0 ? good : bad;
        pipeline.submit({i, std::span(from).subspan(static_cast<size_t>(i) * 16384, 16384), 16384});
      }
    while (!pipeline.empty()) take();
  }
  EXPECT_EQ(sums[0].size(), 40u);
  EXPECT_EQ(sums[0], sums[1]);
}

}  // namespace
}  // namespace lockstep::checkpoint
