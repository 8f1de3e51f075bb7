// What happened to a run, for the person who has to decide what to do next: the first cause, when
// and where, what it cost, what the run did about it, what to do, and what followed. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/status/run_status.h"
#include "cli/why/cause.h"

namespace lockstep::cli {

// One line of metrics.jsonl.
struct LoggedStep {
  int64_t step = -1;
  double seconds = 0, unix_s = 0;
};

// What a run folder says.
struct RunFacts {
  std::string folder;
  RunStatus status;
  std::vector<LaunchRecord> launches;
  std::vector<LoggedStep> steps;  // in the order of the file, those that were done again too
  bool on_gpus = false;
  std::string slurm_job;  // "": none
  double now_s = 0;       // Unix time
};

// A number that nobody knows is -1.
struct Cost {
  int64_t steps_again = -1;  // were done before, and are computed again
  double seconds_again = -1;
  double seconds_down = -1;     // without training
  int64_t ranks = -1;           // that waited or computed again
  bool when_resumed = false;    // the steps are computed again when the run is resumed
  double rank_seconds() const;  // -1: nothing is known
};

// What followed from the cause.
struct ChainLink {
  double unix_s = -1;
  std::string event, words, node;
  int64_t rank = -1, step = -1;
};

struct Account {
  std::string folder, state, now;  // now: state_text()
  bool well = false;               // nothing went wrong; then there is only `what`
  int64_t exit_status = -1;
  Cause cause = Cause::kNone;
  std::string what;  // the first cause, in a sentence
  double unix_s = -1, ago_s = -1;
  int64_t step = -1, generation = -1, rank = -1, gpu = -1, pid = -1;
  std::string node, error;  // error: the last one that the rank logged
  bool on_gpus = false;
  Cost cost;
  int64_t failures = 0;  // of this launch
  Cost total;            // of all of them, where there are several
  std::string did;
  std::vector<std::string> to_do, remarks;
  std::vector<ChainLink> chain;
  std::string log;                     // the file in which the rank's output is; "": none
  std::vector<std::string> log_lines;  // its last ones before it ended
};

Account account_of(const RunFacts& facts);

// The parts of the above.
// Of a failure that the run recovered from, or that it ended by.
Cost cost_of(const Failure& failure, const LaunchRecord& launch, const RunFacts& facts);
// Of an end: the steps since the newest checkpoint.
Cost cost_of_end(const LaunchRecord& launch, const RunFacts& facts);
std::vector<ChainLink> chain_of(const LaunchRecord& launch, size_t from);

// "rank 1 on node2 was killed by SIGKILL, which …"
std::string what_text(Cause cause, const Failure& failure);
// What a person should do about the cause. `over`: the run has ended; `step`: of its newest
// checkpoint, -1: none.
std::vector<std::string> to_do_about(Cause cause, const Failure& failure, bool over, int64_t step);
std::string resume_text(int64_t checkpoint_step);
// "rank 1 on node2"
std::string who_text(const Failure& failure);

}  // namespace lockstep::cli
