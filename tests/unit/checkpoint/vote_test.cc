#include "checkpoint/save/vote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/checkpoint/part_of.h"

namespace lockstep::checkpoint {
namespace {

using test_support::part_of;
using testing::HasSubstr;

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

// Also to ranks whose own disk has room: they end alike.
TEST(Votes, AFullDiskIsSaidToAll) {
  Vote full{1, "disk full", {}};
  full.disk_full = true;
  const auto merged = merge_votes({{0, "slow", {}}, parse_vote(vote_text(full)).value()});
  ASSERT_FALSE(merged.ok());
  EXPECT_EQ(merged.error().code, Code::kNoSpace);
  EXPECT_EQ(parse_outcome(outcome_text(merged.error())).error().code, Code::kNoSpace);
  EXPECT_EQ(parse_outcome(outcome_text(Error{Code::kIo, "why"})).error().code, Code::kIo);
  EXPECT_EQ(merge_votes({{0, "slow", {}}}).error().code, Code::kIo);
}

TEST(Votes, PartsOfAManifestMakeAWholeAndDoNotMixWithFiles) {
  const auto group = [](int rank, int64_t first, int64_t length) {
    Manifest m = merge_votes({{rank, "", part_of(rank, first, length)}}, Coverage::kPart).value();
    const std::vector<TensorPiece> pieces = m.files[0].pieces;
    m.set_parts({{text("manifest_0000", rank, ".json"), 9, hex64(3), 1, 1000, pieces}});
    return parse_vote(vote_text({rank, "", m})).value();
  };
  const auto whole = merge_votes({group(0, 0, 5), group(1, 5, 7)});
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole.value().parts.size(), 2u);
  EXPECT_EQ(whole.value().format_version, 3);
  EXPECT_EQ(whole.value().tensors[0].fingerprint.at("param"), hex64(21));
  EXPECT_THAT(error_of({group(0, 0, 5), group(1, 6, 6)}), HasSubstr("element 5 is in no piece"));
  EXPECT_THAT(error_of({group(0, 0, 5), {1, "", part_of(1, 5, 7)}}),
              HasSubstr("voted with manifest parts"));
}

TEST(Votes, AnEphemeralPartAndAPermanentOneDoNotFit) {
  Manifest other = part_of(1, 5, 7);
  other.ephemeral = true;
  EXPECT_THAT(error_of({{0, "", part_of(0, 0, 5)}, {1, "", other}}), HasSubstr("ephemeral"));
  EXPECT_TRUE(parse_manifest(manifest_text(other), Coverage::kPart).value().ephemeral);
  EXPECT_THAT(manifest_text(part_of(1, 5, 7)), testing::Not(HasSubstr("ephemeral")));
}

TEST(Votes, PartsWithUnlikeValidationLossesDoNotFit) {
  Manifest other = part_of(1, 5, 7);
  other.validation_loss = 0.1 + 0.2;
  EXPECT_THAT(error_of({{0, "", part_of(0, 0, 5)}, {1, "", other}}), HasSubstr("validation loss"));
  EXPECT_EQ(parse_manifest(manifest_text(other), Coverage::kPart).value().validation_loss,
            other.validation_loss);
  EXPECT_THAT(manifest_text(part_of(1, 5, 7)), testing::Not(HasSubstr("validation_loss")));
}

TEST(Votes, TheSameBytesAreStaleOnlyWhereUpdatesLieBetween) {
  const Manifest a = part_of(0, 0, 12);
  Manifest b = a;
  b.step = 6;
  EXPECT_FALSE(is_stale(a, b, 0));
  EXPECT_TRUE(is_stale(a, b, 1));
  EXPECT_TRUE(is_stale(a, b, -1));
  b.tensors[0].fingerprint["param"] = hex64(99);
  EXPECT_FALSE(is_stale(a, b, 1));
}

}  // namespace
}  // namespace lockstep::checkpoint
