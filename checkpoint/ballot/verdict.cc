#include "checkpoint/ballot/verdict.h"

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/ballot/rank_tree.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::json;

json error_json(const Error& error) {
  return {{"code", static_cast<int>(error.code)}, {"message", error.message}};
}
Error error_of(const json& j) {
  return {static_cast<Code>(j.at("code").get<int>()), j.at("message")};
}

// Rank 0's last word: settled, for better or worse, or that it cannot be settled.
struct Outcome {
  bool settled = true;
  std::optional<Error> error;
};

std::string outcome_text(const Outcome& outcome) {
  json j{{"settled", outcome.settled}};
  if (outcome.error) j["error"] = error_json(*outcome.error);
  return dump_json(j);
}

Result<std::optional<Error>> parse_outcome(const std::string& words) {
  try {
    const json j = parse_json(words);
    Outcome outcome{j.at("settled"), std::nullopt};
    if (j.contains("error")) outcome.error = error_of(j["error"]);
    if (!outcome.settled) return *outcome.error;
    return std::move(outcome.error);
  } catch (const json::exception& e) {
    return Error{Code::kCorrupt, text("cannot parse the outcome of rank 0: ", e.what())};
  }
}

Outcome outcome_of(const Verdict& whole,
                   const std::function<Result<void>(const Fingerprints&)>& check) {
  if (whole.lost)
    return {false, Error{Code::kTimeout, text("no report on its part from ", *whole.lost)}};
  if (whole.failure) return {true, whole.failure->error.in(text("rank ", whole.failure->rank))};
  const Result<void> checked = check(whole.sums);
  return {true, checked.ok() ? std::optional<Error>() : std::optional<Error>(checked.error())};
}

}  // namespace

Verdict Verdict::of(int rank, const Result<Fingerprints>& sums) {
  Verdict verdict;
  if (sums.ok())
    verdict.sums = sums.value();
  else
    verdict.failure = Failure{rank, sums.error()};
  return verdict;
}

void Verdict::add(const Verdict& later) {
  if (!failure) failure = later.failure;
  if (!lost) lost = later.lost;
  for (const auto& [tensor, sum] : later.sums) sums[tensor] += sum;
}

std::string verdict_text(const Verdict& verdict) {
  json j{{"sums", verdict.sums}};
  if (verdict.lost) j["lost"] = *verdict.lost;
  if (verdict.failure) {
    j["failure"] = error_json(verdict.failure->error);
    j["rank"] = verdict.failure->rank;
  }
  return dump_json(j);
}

Result<Verdict> parse_verdict(const std::string& words) {
  Verdict verdict;
  try {
    const json j = parse_json(words);
    verdict.sums = j.at("sums").get<Fingerprints>();
    if (j.contains("lost")) verdict.lost = j["lost"].get<std::string>();
    if (j.contains("failure"))
      verdict.failure = Verdict::Failure{j.at("rank"), error_of(j["failure"])};
  } catch (const json::exception& e) {
    return Error{Code::kCorrupt, text("cannot parse the verdict of a child rank: ", e.what())};
  }
  return verdict;
}

Result<std::optional<Error>> settle(Ballot& ballot, const std::string& prefix, int rank,
                                    int world_size, Verdict mine,
                                    const std::function<Result<void>(const Fingerprints&)>& check,
                                    std::chrono::milliseconds deadline) {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size && !prefix.empty(), "rank ", rank, " of ",
                 world_size, " under \"", prefix, "\"");
  const RankTree tree{RankTree::Shape::kDeep, world_size};
  const std::string outcome_key = prefix + "/outcome";
  LOCKSTEP_TRY(const auto heard, hear_children(ballot, tree, rank, prefix, deadline));
  for (const Heard& child : heard) {
    Verdict theirs;
    if (child.words.ok()) {
      LOCKSTEP_TRY(theirs, parse_verdict(child.words.value()));
    } else {
      theirs.lost = child.words.error().message;
    }
    mine.add(theirs);
  }
  if (rank == 0) {
    const std::string words = outcome_text(outcome_of(mine, check));
    LOCKSTEP_RETURN_IF_ERROR(ballot.tell(outcome_key, words));
    return parse_outcome(words);
  }
  LOCKSTEP_RETURN_IF_ERROR(ballot.tell(key_of(prefix, rank), verdict_text(mine)));
  const auto words = ballot.hear(outcome_key, tree.outcome_patience(deadline));
  if (!words.ok())
    return words.error().in("waiting for rank 0's outcome over the parts of all ranks");
  return parse_outcome(words.value());
}

}  // namespace lockstep::checkpoint
