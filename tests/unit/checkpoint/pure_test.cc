// The decisions that touch no disk: names, boxes, fingerprints, manifests, votes, retention.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/hash.h"
#include "checkpoint/attempt.h"
#include "checkpoint/flat_boxes.h"
#include "checkpoint/retention.h"
#include "checkpoint/shard_file_writer.h"
#include "checkpoint/vote.h"
#include "tests/unit/checkpoint/world.h"

namespace lockstep::checkpoint {
namespace {

using test_support::value_at;
using testing::HasSubstr;

TEST(Attempt, NamesAreReadBack) {
  EXPECT_EQ(attempt_name({1000, 3, "7f2a91", 1}), "step_00001000.g3-7f2a91");
  EXPECT_EQ(attempt_name({123456789, 0, "ab", 2}), "step_123456789.g0-ab-2");
  for (const Attempt& a : {Attempt{0, 0, "0", 1}, Attempt{99, 12, "beef", 3}})
    EXPECT_EQ(parse_attempt(attempt_name(a)), a);
  for (const char* name : {"LATEST", "step_", "step_1", "step_x.g1-a", "step_1.g-a", "step_1.g1",
                           "step_1.g1-", "step_1.g1-a-b", "step_1.g1-a-1-1", "xstep_1.g1-a"})
    EXPECT_FALSE(parse_attempt(name)) << name;
}

TEST(FlatBoxes, CoverARunExactlyInOrder) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {1}, {7}, {3, 5}, {1, 4}, {4, 1}, {2, 3, 4}, {3, 1, 2, 2}}) {
    const std::vector<int64_t> dims = shape.empty() ? std::vector<int64_t>{1} : shape;
    const int64_t count = element_count(shape);
    for (int64_t first = 0; first < count; ++first)
      for (int64_t last = first + 1; last <= count; ++last) {
        int64_t at = first;
        const auto boxes = flat_boxes(shape, first, last - first);
        EXPECT_LE(boxes.size(), 2 * dims.size() - 1);
        for (const Box& box : boxes) {
          EXPECT_EQ(box.flat_start, at);
          int64_t flat = 0, elements = 1;
          for (size_t d = 0; d < dims.size(); ++d) {
            EXPECT_LE(box.start[d] + box.count[d], dims[d]);
            flat = flat * dims[d] + box.start[d];
            elements *= box.count[d];
          }
          EXPECT_EQ(flat, at);
          EXPECT_EQ(elements, box.elements);
          at += elements;
        }
        EXPECT_EQ(at, last);
      }
  }
}

TEST(Fingerprint, PartsAddUpAndEveryChangeShows) {
  std::vector<float> values(10007);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = value_at("x", 1, static_cast<int64_t>(i));
  const auto bytes = std::as_writable_bytes(std::span(values));
  const uint64_t whole = fingerprint(bytes, 0);
  for (size_t cut : {size_t{1}, size_t{5000}, values.size() - 1})
    EXPECT_EQ(fingerprint(bytes.first(4 * cut), 0) +
                  fingerprint(bytes.subspan(4 * cut), static_cast<int64_t>(cut)),
              whole);
  EXPECT_NE(fingerprint(bytes, 1), whole);
  for (size_t bit = 0; bit < 32; ++bit) {
    bytes[4 * 777 + bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_NE(fingerprint(bytes, 0), whole);
    bytes[4 * 777 + bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
  std::swap(values[10], values[11]);
  EXPECT_NE(fingerprint(bytes, 0), whole);
  // docs/FORMAT.md: one word of 1 at index 0.
  const float one_word = 0x1p-149f;
  EXPECT_EQ(fingerprint(std::as_bytes(std::span(&one_word, 1)), 0), 0x17fb89ee9dcab42bULL);
}

// Lengths around every vector width, starts in the middle of a tensor, targets at odd places.
TEST(Fingerprint, EveryFormAgreesAndCopies) {
  std::vector<std::byte> from(4 * 5000), to(4 * 5000 + 65);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(mix64(i));
  for (size_t count : {0u, 1u, 7u, 8u, 9u, 15u, 16u, 17u, 31u, 33u, 1000u, 4999u})
    for (int64_t start : {int64_t{0}, int64_t{77}, int64_t{1} << 40}) {
      const auto bytes = std::span(from).subspan(4, 4 * count);
      const uint64_t expected = fingerprint(bytes, start, Isa::kPortable);
      for (Isa isa : isas_here()) {
        EXPECT_EQ(fingerprint(bytes, start, isa), expected) << isa_name(isa) << " " << count;
        for (size_t offset : {0u, 1u, 4u, 60u, 64u}) {
          std::fill(to.begin(), to.end(), std::byte{0xee});
          const auto target = std::span(to).subspan(offset, bytes.size());
          EXPECT_EQ(copy_with_fingerprint(bytes, target, start, isa), expected)
              << isa_name(isa) << " " << count << " at " << offset;
          EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), target.begin()));
          EXPECT_TRUE(std::all_of(target.end(), std::span(to).end(),
                                  [](std::byte b) { return b == std::byte{0xee}; }));
        }
      }
    }
}

Manifest part_of(int rank, int64_t first, int64_t length) {
  Manifest m;
  m.step = 5;
  m.generation = 2;
  m.world_size = 2;
  m.nonce = "ab";
  m.created_utc = "2026-01-01T00:00:00Z";
  m.chunk_elements = 8;
  m.trainer_state = "{\"step\":5}";
  const TensorPiece piece{"w", Kind::kParam, {3, 4}, first, length};
  m.files.push_back({shard_file_name(rank), 1000 + rank, 2, 64, hex64(1), hex64(2), {piece}});
  m.tensors.push_back({"w", {3, 4}, {{"param", hex64(static_cast<uint64_t>(10 + rank))}}});
  return m;
}

TEST(Manifest, TextIsReadBackAndEveryDamagedByteIsSeen) {
  const Manifest whole = part_of(0, 0, 12);
  const std::string contents = manifest_text(whole);
  const auto parsed = parse_manifest(contents);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(manifest_text(parsed.value()), contents);
  EXPECT_EQ(parsed.value().files[0].pieces, whole.files[0].pieces);
  for (size_t at = 0; at < contents.size(); ++at) {
    std::string damaged = contents;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_FALSE(parse_manifest(damaged).ok()) << at;
    EXPECT_FALSE(parse_manifest(contents.substr(0, at)).ok()) << at;
  }
  EXPECT_FALSE(parse_manifest(contents + "\n").ok());
}

TEST(Manifest, AnotherFormatVersionIsAConfigError) {
  Manifest next = part_of(0, 0, 12);
  next.format_version = 2;
  const auto parsed = parse_manifest(manifest_text(next));
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, Code::kConfig);
  EXPECT_THAT(parsed.error().message, HasSubstr("format version 2"));
}

TEST(Votes, PartsBecomeAWhole) {
  const std::string zero = vote_text({0, "", part_of(0, 0, 5)});
  const std::string one = vote_text({1, "", part_of(1, 5, 7)});
  const auto merged = merge_votes({parse_vote(zero).value(), parse_vote(one).value()});
  ASSERT_TRUE(merged.ok()) << merged.error().message;
  EXPECT_EQ(merged.value().files.size(), 2u);
  EXPECT_EQ(merged.value().tensors[0].fingerprint.at("param"), hex64(21));
}

std::string error_of(const std::vector<Vote>& votes) {
  const auto merged = merge_votes(votes);
  return merged.ok() ? "merged" : merged.error().message;
}

TEST(Votes, WhatDoesNotFitIsNamed) {
  const Vote zero{0, "", part_of(0, 0, 5)};
  EXPECT_THAT(error_of({zero, {1, "", part_of(1, 6, 6)}}), HasSubstr("element 5 is in no piece"));
  EXPECT_THAT(error_of({zero, {1, "", part_of(1, 4, 8)}}), HasSubstr("element 4 is in two pieces"));
  EXPECT_THAT(error_of({zero, {1, "", part_of(1, 5, 6)}}), HasSubstr("hold 11 elements"));
  EXPECT_THAT(error_of({zero, {1, "disk on fire", {}}}), HasSubstr("rank 1: disk on fire"));
  Manifest other = part_of(1, 5, 7);
  other.trainer_state = "{\"step\":6}";
  EXPECT_THAT(error_of({zero, {1, "", other}}), HasSubstr("differ in trainer state"));
  EXPECT_FALSE(parse_vote("{}").ok());
  EXPECT_FALSE(parse_vote("nonsense").ok());
  EXPECT_TRUE(parse_outcome(outcome_text({})).ok());
  const auto failed = parse_outcome(outcome_text(Error{Code::kIo, "why"}));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "why");
}

TEST(Votes, TheSameBytesAtAnotherStepAreStale) {
  const Manifest a = part_of(0, 0, 12);
  Manifest b = a;
  EXPECT_FALSE(is_stale(a, b));
  b.step = 6;
  EXPECT_TRUE(is_stale(a, b));
  b.tensors[0].fingerprint["param"] = hex64(99);
  EXPECT_FALSE(is_stale(a, b));
}

CatalogEntry entry(int64_t step, int64_t generation, bool committed, bool has_manifest) {
  return {text(step, ".", generation), step, generation, committed, has_manifest, "", 0};
}

TEST(Retention, KeepsTheLastCommittedAndNothingOlder) {
  const std::vector<CatalogEntry> entries = {
      entry(50, 1, false, false), entry(40, 1, true, true),   entry(30, 1, false, true),
      entry(20, 1, true, true),   entry(15, 1, false, false), entry(10, 1, true, true)};
  const std::vector<std::filesystem::path> old = {"15.1", "10.1"};
  EXPECT_EQ(superfluous(entries, 2, 1), old);
  EXPECT_TRUE(superfluous(entries, 0, 1).empty());
  EXPECT_TRUE(superfluous(entries, 3, 1).empty());
}

TEST(Retention, AfterAFallBackTheNewLineCounts) {
  const std::vector<CatalogEntry> entries = {entry(300, 3, true, true), entry(260, 4, true, true),
                                             entry(250, 4, true, true), entry(200, 3, true, true)};
  const std::vector<std::filesystem::path> old = {"300.3", "200.3"};
  EXPECT_EQ(superfluous(entries, 2, 4), old);
}

TEST(Retention, ALaterGenerationIsNeverTouched) {
  const std::vector<CatalogEntry> entries = {entry(300, 3, true, true), entry(250, 4, false, false),
                                             entry(240, 4, true, true), entry(200, 3, true, true),
                                             entry(100, 3, true, true)};
  const std::vector<std::filesystem::path> old = {"200.3", "100.3"};
  EXPECT_EQ(superfluous(entries, 2, 3), old);
  EXPECT_TRUE(orphans(entries, 4).empty());
  EXPECT_EQ(orphans(entries, 5), std::vector<std::filesystem::path>{"250.4"});
}

}  // namespace
}  // namespace lockstep::checkpoint
