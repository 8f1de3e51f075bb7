// How the ranks settle on one checkpoint: rank 0 proposes, each says what became of its part, and
// all take the same outcome. Over the store of this generation.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "checkpoint/ballot/ballot.h"
#include "checkpoint/record/catalog.h"
#include "core/comm/communicator.h"
#include "core/comm/shared_store.h"

namespace lockstep::core {

// One rank's part of one candidate, loaded.
struct LoadedPart {
  checkpoint::Manifest manifest;
  checkpoint::Fingerprints sums;  // of what this rank owns
};

// What rank 0 proposes in round k: a snapshot, a directory, or that there is nothing left.
struct Proposal {
  std::string snapshot;    // checkpoint::snapshot_text, or ""
  std::string directory;   // or ""
  int64_t disk_step = -1;  // newest one committed on disk
  int64_t next_generation = 1;
  std::string nonce;
  std::string refusal;  // nothing can be proposed, and why that ends the run
  bool unread = false;  // and that may pass: the operating system refused a read
};

// As checkpoint::settle, of this rank's sums or why it has none; and where there is an error, after
// which a run ends, all have heard it when this returns: rank 0 may serve the store. Collective.
Result<std::optional<Error>> settle_for_all(
    checkpoint::Ballot& ballot, Communicator& comm, const std::string& key,
    const Result<checkpoint::Fingerprints>& mine,
    const std::function<Result<void>(const checkpoint::Fingerprints&)>& check,
    std::chrono::milliseconds deadline);

// Nothing where `mine` is well at every rank; else the error of the first rank where it is not, the
// same at all, which names it. `key` is used once. Collective: a rank that failed alone would be
// waited for. Errors: kTimeout, communication.
Result<void> all_well(SharedStore& store, Communicator& comm, const std::string& key,
                      const Result<void>& mine, double timeout_s);

// Collective: every rank calls the same methods with the same rounds. Borrows all.
class Agreement {
 public:
  // `prefix`: of its keys in the store, each of which is used once.
  Agreement(SharedStore& store, Communicator& comm, double timeout_s, std::string prefix)
      : store_(store), comm_(comm), timeout_s_(timeout_s), prefix_(std::move(prefix)) {}

  // Rank 0's, on every rank. Errors: communication.
  Result<Proposal> share(size_t round, const Proposal& mine);
  // The first error in rank order, in this rank's own words where it failed too, or none. The
  // parts' fingerprints add up to the whole tensors', which the manifest has. Errors:
  // communication.
  Result<std::optional<Error>> outcome(size_t round, const Result<LoadedPart>& mine);

 private:
  SharedStore& store_;
  Communicator& comm_;
  double timeout_s_;
  std::string prefix_;
};

}  // namespace lockstep::core
