// Brings the facts of several nodes together, through files in the folder that they share, then has
// each measure its way to all others. Node 0 leads; the others answer until it ends the meeting.
// Meanwhile each node listens at the address that peers will use, for who knows the session's word.
//
//   <folder>/session                  node 0's word for this meeting, made anew each time
//   <folder>/node_<rank>_<session>    a node's facts
//   <folder>/ping_<k>_<session>       node 0 asks what time it is
//   <folder>/pong_<k>_<rank>_<session>
//   <folder>/peers_<session>          node 0: where each listens; all measure now
//   <folder>/pairs_<rank>_<session>   what a node measured
// Node 0 removes the folder at the end. Files of a meeting that was cut off bear another session.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/result.h"
#include "cli/doctor/doctor_facts.h"

namespace lockstep::cli {

// How far a node's wall clock is ahead of node 0's: `ahead_s`, at most `error_s` more or less.
struct ClockSkew {
  double ahead_s = 0, error_s = 0;
};
struct MetNode {
  int64_t rank = 0;
  NodeFacts facts;
  std::optional<ClockSkew> skew;  // none of node 0, and of one that did not answer
  std::vector<PairFacts> pairs;   // as many as there was time for
};

struct MeetingOptions {
  std::filesystem::path folder;  // the same on all nodes; its parent may be missing too
  std::string session;           // node 0: a word that nobody used before
  int64_t rank = 0, nodes = 1;
  double limit_s = 120;  // for all to have come; after it those who came count
  double pairs_s = 60;   // then no node begins to measure another pair
};

// Node 0: every node that came, by rank, itself first. Errors: kIo.
Result<std::vector<MetNode>> lead_meeting(FileSystem& file_system, Clock& clock,
                                          const MeetingOptions& options, const NodeFacts& own);
// The others: returns when the meeting is over. Errors: kIo; kTimeout, node 0 was not seen: the
// folder is not shared, or it is gone.
Result<void> attend_meeting(FileSystem& file_system, Clock& clock, const MeetingOptions& options,
                            const NodeFacts& own);

}  // namespace lockstep::cli
