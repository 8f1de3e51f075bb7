// What a rank says about its part of a save, and what rank 0 makes of all parts.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/record/manifest.h"

namespace lockstep::checkpoint {

struct Vote {
  int rank = 0;
  std::string error;       // empty: all is on disk
  Manifest part;           // its file (none when the rank has no state) and partial fingerprints
  bool disk_full = false;  // is the error
};
std::string vote_text(const Vote& vote);
// Errors: kCorrupt.
Result<Vote> parse_vote(const std::string& contents);

// The manifest of the whole, or of a group of ranks: fingerprints added up, files and parts in rank
// order; the rest is the first rank's. Errors: kIo, or kNoSpace where a disk was full, carrying
// each failed rank's error; kBug when ranks disagree on step, codec, shapes or trainer state;
// kCorrupt when the pieces of a whole do not cover each tensor exactly once.
Result<Manifest> merge_votes(const std::vector<Vote>& votes, Coverage coverage = Coverage::kWhole);

// Rank 0's last word.
std::string outcome_text(const Result<void>& committed);
Result<void> parse_outcome(const std::string& contents);

// Whether two checkpoints hold the same bytes throughout although the optimizer made
// `updates_between` them: then the copy that was saved is not the state that was trained.
bool is_stale(const Manifest& previous, const Manifest& next, int64_t updates_between);

}  // namespace lockstep::checkpoint
