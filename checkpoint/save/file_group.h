// Ranks whose state lies in one file: at most checkpoint.ranks_per_file that follow each other on
// one node. The first of them writes it, and hears through the ballot where the chunks of the
// others are (chunk_ring.h).
//
//   1. once, before the first save: the writer and each other one map a page of each other's memory
//   2. each save: each other one says where its chunks are
//
// From 1 on each sees at once that the process at the other end has died.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/shared_region.h"
#include "checkpoint/ballot/ballot.h"
#include "checkpoint/shard_file/chunk_ring.h"

namespace lockstep::checkpoint {

struct FileGroup {
  int writer = 0, ranks = 1;  // and those that follow it
};
// `node_of_rank`: of all ranks; empty: one node.
FileGroup file_group(int rank, int world_size, const std::vector<int>& node_of_rank,
                     int ranks_per_file);

// One rank's view of its group. Borrows the ballot. Thread: one at a time.
class FileNeighbours {
 public:
  // Says where this rank's page is, where it has neighbours. Errors: kIo, the ballot's.
  static Result<FileNeighbours> create(Ballot& ballot, int rank, const FileGroup& group);
  // Step 1, which nothing but an error repeats. Errors: kConfig where a page cannot be mapped,
  // naming rank and key; kTimeout and kAborted, naming the rank; the ballot's.
  Result<void> meet(const Patience& patience);
  const FileGroup& group() const { return group_; }
  // The page of the writer, or, at the writer, of another one. Requires: met.
  const SharedRegion& page_of(int rank) const { return pages_.at(rank); }

 private:
  FileNeighbours(Ballot& ballot, int rank, const FileGroup& group)
      : ballot_(&ballot), rank_(rank), group_(group) {}
  std::vector<int> others() const;

  Ballot* ballot_;
  int rank_;
  FileGroup group_;
  std::optional<SharedRegion> mine_;
  std::map<int, SharedRegion> pages_;  // by rank
};

// What a rank that is not the writer says, once an attempt: where its chunks are. Empty: it has
// failed, and there will be none. Errors: the ballot's.
Result<void> tell_address(Ballot& ballot, const std::string& attempt, int rank,
                          const std::string& address);
// The writer's part: the inboxes of all others, in their order. After an error those that could be
// opened are told. Requires: met. Errors: kIo, kTimeout and kAborted, which name the rank; the
// ballot's.
Result<std::vector<ChunkInbox>> open_inboxes(Ballot& ballot, const std::string& attempt,
                                             const FileNeighbours& neighbours,
                                             const Patience& patience);

}  // namespace lockstep::checkpoint
