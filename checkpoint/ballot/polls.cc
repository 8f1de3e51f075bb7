#include "checkpoint/ballot/polls.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/byte_codec.h"
#include "base/check.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

std::string prefix_of(const std::string& attempt) { return text("save/", attempt); }
std::string outcome_key(const std::string& attempt) { return prefix_of(attempt) + "/outcome"; }

// The votes of a run of ranks, and who of them did not vote.
struct Votes {
  std::vector<std::string> in_order;
  std::string silent;

  void add_silent(const std::string& who) { silent += (silent.empty() ? "" : "; ") + who; }
  void append(Votes more) {
    std::move(more.in_order.begin(), more.in_order.end(), std::back_inserter(in_order));
    if (!more.silent.empty()) add_silent(more.silent);
  }
};

std::string words_of(const Votes& votes) {
  ByteWriter out;
  out.text(votes.silent);
  out.number(static_cast<uint32_t>(votes.in_order.size()));
  for (const std::string& vote : votes.in_order) out.text(vote);
  return out.take();
}

Result<Votes> parse_votes(const std::string& words) {
  ByteReader in(words);
  Votes votes;
  votes.silent = in.text();
  const size_t count = in.count(sizeof(uint32_t));
  for (size_t i = 0; i < count; ++i) votes.in_order.emplace_back(in.text());
  if (!in.finished())
    return Error{Code::kCorrupt, "cannot parse the votes of a child rank: they are malformed"};
  return votes;
}

}  // namespace

Result<Polls::Texts> Polls::vote(const std::string& attempt, const std::string& mine,
                                 const Join& join) {
  LOCKSTEP_CHECK(rank_ >= 0 && rank_ < tree_.world_size && !attempt.empty(), "rank ", rank_, " of ",
                 tree_.world_size, " votes on \"", attempt, "\"");
  LOCKSTEP_CHECK(std::find(announced_.begin(), announced_.end(), attempt) == announced_.end(),
                 attempt, " is voted on after its outcome");
  const std::string prefix = prefix_of(attempt);
  Votes votes{{mine}, ""}, of_other_groups;
  LOCKSTEP_TRY(const auto heard, hear_children(ballot_, tree_, rank_, prefix, deadline_));
  for (const Heard& child : heard) {
    Votes& into = child.rank < rank_ + tree_.group() ? votes : of_other_groups;
    if (!child.words.ok()) {
      into.add_silent(child.words.error().message);
      continue;
    }
    LOCKSTEP_TRY(Votes theirs, parse_votes(child.words.value()));
    into.append(std::move(theirs));
  }
  const bool first_of_a_group = rank_ % tree_.group() == 0;
  if (join && first_of_a_group && votes.silent.empty())
    votes.in_order = join(std::move(votes.in_order));
  votes.append(std::move(of_other_groups));
  if (rank_ != 0) {
    LOCKSTEP_RETURN_IF_ERROR(ballot_.tell(key_of(prefix, rank_), words_of(votes)));
    return Texts();
  }
  if (!votes.silent.empty())
    return Error{Code::kTimeout, text("no vote on save ", attempt, " from ", votes.silent)};
  for (const std::string& earlier : std::exchange(announced_, {}))
    ballot_.forget(outcome_key(earlier));
  return std::move(votes.in_order);
}

Result<void> Polls::vote_alone(const std::string& attempt, const std::string& mine) {
  Votes votes{{mine}, ""};
  if (tree_.last(rank_) > rank_)
    votes.add_silent(text("rank ", rank_ + 1, " to ", tree_.last(rank_)));
  return ballot_.tell(key_of(prefix_of(attempt), rank_), words_of(votes));
}

Result<void> Polls::announce(const std::string& attempt, const std::string& outcome) {
  LOCKSTEP_CHECK(rank_ == 0, "rank ", rank_, " announces what came of ", attempt);
  LOCKSTEP_CHECK(std::find(announced_.begin(), announced_.end(), attempt) == announced_.end(),
                 attempt, " is announced twice");
  announced_.push_back(attempt);
  return ballot_.tell(outcome_key(attempt), outcome);
}

Result<std::string> Polls::await_outcome(const std::string& attempt) {
  LOCKSTEP_CHECK(rank_ != 0, "rank 0 waits for its own word on ", attempt);
  auto outcome = ballot_.hear(outcome_key(attempt), tree_.outcome_patience(deadline_));
  if (!outcome.ok())
    return outcome.error().in(text("waiting for rank 0's outcome of save ", attempt));
  return outcome;
}

}  // namespace lockstep::checkpoint
