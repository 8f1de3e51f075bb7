// The decisions that touch no disk: names, boxes, fingerprints, manifests, when to save.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/hash.h"
#include "checkpoint/record/attempt.h"
#include "checkpoint/record/flat_boxes.h"
#include "checkpoint/save/save_schedule.h"
#include "tests/support/each_target.h"
#include "tests/unit/checkpoint/part_of.h"

namespace lockstep::checkpoint {
namespace {

using test_support::part_of;
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
  for (size_t i = 0; i < values.size(); ++i) values[i] = value_at("x", 1, static_cast<int64_t>(i));
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

// docs/FORMAT.md, word by word.
uint64_t fingerprint_by_the_book(std::span<const std::byte> bytes, int64_t flat_start) {
  uint64_t sum = 0;
  for (size_t i = 0; 4 * i < bytes.size(); ++i) {
    uint32_t word;
    std::memcpy(&word, bytes.data() + 4 * i, 4);
    uint64_t z = (static_cast<uint64_t>(flat_start) + i + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93ULL;
    sum += word * ((z ^ (z >> 32)) | 1);
  }
  return sum;
}

// bf16: the same formula over 16 bits.
TEST(Fingerprint, HalvesAddUpAsWordsOfTheirBits) {
  std::vector<uint16_t> halves(9001), copy(halves.size());
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(mix64(i));
  const std::vector<uint32_t> words(halves.begin(), halves.end());
  const auto bytes = std::as_bytes(std::span(halves));
  for (const int64_t start : {int64_t{0}, int64_t{77}, int64_t{1} << 40}) {
    const uint64_t whole = fingerprint_by_the_book(std::as_bytes(std::span(words)), start);
    EXPECT_EQ(fingerprint(bytes, start, Dtype::kBf16), whole);
    EXPECT_EQ(
        copy_with_fingerprint(bytes, std::as_writable_bytes(std::span(copy)), start, Dtype::kBf16),
        whole);
    EXPECT_EQ(copy, halves);
    for (const size_t cut : {size_t{1}, size_t{4096}, size_t{8192}, halves.size() - 1})
      EXPECT_EQ(
          fingerprint(bytes.first(2 * cut), start, Dtype::kBf16) +
              fingerprint(bytes.subspan(2 * cut), start + static_cast<int64_t>(cut), Dtype::kBf16),
          whole);
  }
}

// Lengths around every vector width, starts in the middle of a tensor, targets at odd places.
TEST(Fingerprint, EveryFormAgreesAndCopies) {
  std::vector<std::byte> from(4 * 5000), to(4 * 5000 + 65);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(mix64(i));
  for (size_t count : {0u, 1u, 7u, 8u, 9u, 15u, 16u, 17u, 31u, 33u, 1000u, 4999u})
    for (int64_t start : {int64_t{0}, int64_t{77}, int64_t{1} << 40}) {
      const auto bytes = std::span(from).subspan(4, 4 * count);
      const uint64_t expected = fingerprint_by_the_book(bytes, start);
      on_each_target([&] {
        EXPECT_EQ(fingerprint(bytes, start), expected) << count;
        for (size_t offset : {0u, 1u, 4u, 60u, 64u}) {
          std::fill(to.begin(), to.end(), std::byte{0xee});
          const auto target = std::span(to).subspan(offset, bytes.size());
          EXPECT_EQ(copy_with_fingerprint(bytes, target, start), expected)
              << count << " at " << offset;
          EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), target.begin()));
          EXPECT_TRUE(std::all_of(target.end(), std::span(to).end(),
                                  [](std::byte b) { return b == std::byte{0xee}; }));
        }
      });
    }
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

Manifest part_in_parts() {
  Manifest whole = part_of(0, 0, 12);
  const std::vector<TensorPiece> pieces = whole.files[0].pieces;
  whole.set_parts({{"manifest_00000.json", 400, hex64(3), 1, 1000, pieces}});
  return whole;
}

TEST(Manifest, InPartsItNamesTheseAndNoFile) {
  const Manifest whole = part_in_parts();
  const std::string contents = manifest_text(whole);
  const auto parsed = parse_manifest(contents);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(manifest_text(parsed.value()), contents);
  EXPECT_EQ(parsed.value().format_version, 3);
  EXPECT_TRUE(parsed.value().files.empty());
  EXPECT_EQ(parsed.value().parts[0].pieces, whole.parts[0].pieces);
  Manifest short_of_one = whole;
  short_of_one.parts[0].pieces[0].length = 11;
  EXPECT_THAT(parse_manifest(manifest_text(short_of_one)).error().message,
              HasSubstr("the pieces hold 11 elements"));
}

void expect_refused(Manifest crafted, const char* what,
                    const std::function<void(Manifest&)>& change) {
  change(crafted);
  const auto parsed = parse_manifest(manifest_text(crafted), Coverage::kPart);
  ASSERT_FALSE(parsed.ok()) << what;
  EXPECT_EQ(parsed.error().code, Code::kCorrupt) << what;
  EXPECT_THAT(parsed.error().message, HasSubstr(what));
}

// A program that computes with them would divide by zero, wrap, or open another's files.
TEST(Manifest, NumbersAndNamesThatCannotBeAreRefused) {
  const std::vector<std::pair<const char*, std::function<void(Manifest&)>>> cases = {
      {"chunk size: -1", [](Manifest& m) { m.chunking.elements = -1; }},
      {"chunk size: 9223372036854775807", [](Manifest& m) { m.chunking.elements = INT64_MAX; }},
      {"2305843009213693952 chunks", [](Manifest& m) { m.files[0].chunk_rows = int64_t{1} << 61; }},
      {"-1 bytes", [](Manifest& m) { m.files[0].size_bytes = -1; }},
      {"table at -8", [](Manifest& m) { m.files[0].chunk_table_offset = -8; }},
      {"is not a plain file name", [](Manifest& m) { m.files[0].name = "/etc/passwd"; }},
      {"is not a plain file name", [](Manifest& m) { m.files[0].name = "../rank_00000.h5"; }},
      {"is not a plain file name", [](Manifest& m) { m.files[0].name = ".."; }},
      {"world size 0", [](Manifest& m) { m.world_size = 0; }},
      {"step -1", [](Manifest& m) { m.step = -1; }},
      {"shape [4294967296, 4294967296]",
       [](Manifest& m) {
         m.tensors[0].global_shape = {int64_t{1} << 32, int64_t{1} << 32};
       }},
      {"shape [-1]", [](Manifest& m) { m.tensors[0].global_shape = {-1}; }},
      {"does not fit the shape", [](Manifest& m) { m.files[0].pieces[0].flat_start = INT64_MAX; }},
      {"does not fit the shape", [](Manifest& m) { m.files[0].pieces[0].length = -1; }},
      {"does not fit the shape", [](Manifest& m) { m.files[0].pieces[0].length = INT64_MAX; }},
      {"nested more than 64", [](Manifest& m) {
         m.trainer_state = std::string(100'000, '[') + std::string(100'000, ']');
       }}};
  for (const auto& [what, change] : cases) expect_refused(part_of(0, 0, 12), what, change);
}

TEST(Manifest, PartsThatCannotBeAreRefused) {
  const std::vector<std::pair<const char*, void (*)(ManifestPart&)>> cases = {
      {"-1 bytes", [](ManifestPart& p) { p.size_bytes = -1; }},
      {"of -1 files", [](ManifestPart& p) { p.file_count = -1; }},
      {"of 401 files", [](ManifestPart& p) { p.file_count = p.size_bytes + 1; }},
      {"9223372036854775807 bytes", [](ManifestPart& p) { p.stored_bytes = INT64_MAX; }},
      {"is not a plain file name", [](ManifestPart& p) { p.name = "../manifest_00000.json"; }},
      {"does not fit the shape", [](ManifestPart& p) { p.pieces[0].length = INT64_MAX; }}};
  for (const auto& [what, change] : cases)
    expect_refused(part_in_parts(), what, [&](Manifest& m) { change(m.parts[0]); });
}

TEST(Manifest, AnotherFormatVersionIsAConfigError) {
  Manifest next = part_of(0, 0, 12);
  next.format_version = 4;
  const auto parsed = parse_manifest(manifest_text(next));
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, Code::kConfig);
  EXPECT_THAT(parsed.error().message,
              HasSubstr("its format version is 4; this program reads 1 to 3"));
}

TEST(SaveSchedule, ByStepsByTimeAndInBetween) {
  struct Case {
    SaveSchedule schedule;
    int64_t step;
    bool must, time_is_up;
    Due due;
  };
  const Case cases[] = {
      {{0, 0}, 50, false, false, Due::kNo},          {{0, 0}, 50, true, false, Due::kPermanent},
      {{50, 0}, 50, false, false, Due::kPermanent},  {{50, 0}, 51, false, false, Due::kNo},
      {{50, 10}, 60, false, false, Due::kEphemeral}, {{50, 10}, 100, false, false, Due::kPermanent},
      {{50, 10}, 60, true, false, Due::kPermanent},  {{50, 10}, 60, false, true, Due::kPermanent},
      {{50, 10}, 61, false, true, Due::kPermanent},  {{50, 15}, 75, false, false, Due::kEphemeral},
      {{0, 10}, 20, false, false, Due::kEphemeral},  {{0, 10}, 21, false, false, Due::kNo},
  };
  for (const Case& c : cases)
    EXPECT_EQ(save_due(c.schedule, c.step, c.must, c.time_is_up), c.due)
        << c.schedule.interval << " " << c.schedule.ephemeral_interval << " at " << c.step;
}

}  // namespace
}  // namespace lockstep::checkpoint
