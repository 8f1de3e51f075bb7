// Ranks whose state lies in one file: at most checkpoint.ranks_per_file that follow each other on
// one node. The first of them writes it, and hears through the ballot where the chunks of the
// others are (chunk_ring.h).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/ballot/ballot.h"
#include "checkpoint/shard_file/chunk_ring.h"

namespace lockstep::checkpoint {

struct FileGroup {
  int writer = 0, ranks = 1;  // and those that follow it
};
// `node_of_rank`: of all ranks; empty: one node.
FileGroup file_group(int rank, int world_size, const std::vector<int>& node_of_rank,
                     int ranks_per_file);

// What a rank that is not the writer says, once an attempt: where its chunks are. Empty: it has
// failed, and there will be none. Errors: the ballot's.
Result<void> tell_address(Ballot& ballot, const std::string& attempt, int rank,
                          const std::string& address);
// The writer's part: the inboxes of all others, in their order. After an error those that could be
// opened are told. Errors: kIo, kTimeout and kAborted, naming the rank; the ballot's.
Result<std::vector<ChunkInbox>> open_inboxes(Ballot& ballot, const std::string& attempt,
                                             const FileGroup& group, const Patience& patience);

}  // namespace lockstep::checkpoint
