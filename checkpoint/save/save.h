// One save of one rank, from the live state to the commit. The engine's thread runs it.
//
//   1. stage     copy the live state, check its fingerprints; it may change from then on
//   2. write     the directory, this rank's file, fsync of both; or, where a neighbour writes it
//                (file_group.h), hand all chunks over and wait until it has taken them
//   3. vote      digest or error to rank 0 (polls.h); of many ranks the first of each group
//                publishes its part of the manifest and votes for all of them
//   4. commit    rank 0: merge the votes, look at the fence, publish manifest.json, announce; the
//                others wait
//   5. after it  rank 0: LATEST, index.h5, retention; what fails there is a warning
//
// An error before 4 is voted, so that no rank waits for long. A file is removed only by the rank
// that voted an error; a directory only by rank 0, which alone knows that nothing was committed.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include "checkpoint/ballot/polls.h"
#include "checkpoint/save/file_group.h"
#include "checkpoint/save/save_request.h"
#include "checkpoint/save/staging.h"
#include "checkpoint/save/stoppable_files.h"
#include "checkpoint/save/vote.h"
#include "checkpoint/shard_file/chunk_pipeline.h"
#include "checkpoint/shard_file/shard_file_writer.h"
#include "worker_link/progress_page.h"

namespace lockstep::checkpoint {

struct Committed {  // by this engine
  Manifest manifest;
  int64_t updates;
};

// What outlives a save; of the engine.
struct SaveContext {
  const EngineOptions& options;
  StoppableFiles& files;        // for all that must not happen once the engine is stopped
  StoppableFiles& other_files;  // for what goes on then
  Polls& polls;
  Ballot& ballot;
  StagingArea& staging;
  ChunkPipeline& pipeline;
  FileNeighbours& neighbours;
  const std::atomic<bool>& stopping;
  std::optional<Committed>& previous;  // rank 0
  Catalog& catalog;                    // rank 0
  std::function<void(SavePhase)> set_phase;
  std::function<void()> on_read;        // the live state may change: called once or twice
  std::function<void(bool)> on_staged;  // called once: whether the copy is whole
};

class Save {
 public:
  // `attempt` names the directory and the ballot.
  Save(SaveContext context, SaveRequest request, std::string attempt);
  SaveReport run();

 private:
  Result<void> stage();
  Result<void> write(const Result<void>& staged);
  Result<void> write_with(std::span<ChunkInbox> neighbours);
  Result<void> write_file(std::span<ChunkInbox> neighbours);
  Result<void> hand_over(const Result<void>& staged);
  Result<void> hand_over_to(ChunkOutbox& outbox);
  // That what was encoded is what was staged.
  Result<void> check_encoded(const Fingerprints& sums) const;
  Result<void> vote_and_await(const Result<void>& mine);
  Result<void> cast(const Result<void>& mine);
  Result<Manifest> decide(const Result<void>& mine);
  // Step 4, its last part. Requires what it checks of `manifest` and of this save.
  Result<void> publish(const Manifest& manifest);
  std::string vote_of(const Result<void>& mine) const;
  Polls::Join join_of_groups();
  Polls::Texts join_votes(Polls::Texts texts);
  void after_commit(const Manifest& manifest);
  Manifest part() const;

  // Steps 1 to 3 are begun in their order, each once.
  void begin_phase(SavePhase phase);
  void check_durable() const;
  bool writes() const { return context_.neighbours.group().writer == options_.rank; }

  SaveContext context_;
  const EngineOptions& options_;
  const SaveRequest request_;
  const std::string attempt_;
  const Patience patience_;  // with the neighbours of the file
  SavePhase phase_ = SavePhase::kIdle;
  SaveReport report_;
  Fingerprints fingerprints_;
  std::optional<ManifestFile> file_;
};

}  // namespace lockstep::checkpoint
