// What became of the ranks' parts of one checkpoint that all of them load. Verdicts are added up
// along a tree of ranks (rank_tree.h), and rank 0 tells all what came of it: what a rank hears and
// tells does not grow with the number of ranks, but by its logarithm at rank 0.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "checkpoint/ballot/ballot.h"
#include "checkpoint/record/state.h"

namespace lockstep::checkpoint {

// Of one rank, or of a run of them.
struct Verdict {
  struct Failure {
    int rank = 0;
    Error error;
  };
  std::optional<Failure> failure;   // of the first rank that failed
  std::optional<std::string> lost;  // the first of them whose word did not come
  Fingerprints sums;                // of what the ranks hold, added up; of no meaning beside those

  static Verdict of(int rank, const Result<Fingerprints>& sums);
  void add(const Verdict& later);  // of later ranks
};
std::string verdict_text(const Verdict& verdict);
// Errors: kCorrupt.
Result<Verdict> parse_verdict(const std::string& words);

// Settles on one outcome, the same at every rank: the error of the first rank that has one, naming
// it; else what `check` says of all sums, which rank 0 alone asks; else none. Uses keys that begin
// with `prefix`, once. Collective. Errors: kTimeout at every rank that can still be told, naming a
// rank whose word did not come within `deadline`; the ballot's.
Result<std::optional<Error>> settle(Ballot& ballot, const std::string& prefix, int rank,
                                    int world_size, Verdict mine,
                                    const std::function<Result<void>(const Fingerprints&)>& check,
                                    std::chrono::milliseconds deadline);

}  // namespace lockstep::checkpoint
