// What every rank tells the others once a step, so that all decide alike. No Torch.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/result.h"
#include "layout/slot_map.h"

namespace lockstep::core {

// What a rank's last save came to. The worst of all ranks' decides.
enum class SaveTrouble {
  kNone,
  kFailed,    // it is tried again
  kTooLong,   // saves have failed for checkpoint.outage_minutes
  kDiskFull,  // the same, and the last one for want of room
};

// The saves of one rank that failed in a row.
struct SaveOutage {
  double since_s = 0, failed_s = 0;  // the clock at the first failure, and at the last
  int64_t failures = 0;
};

// What a rank says of it, where training goes on for `most_s` seconds without saves; `last`: of the
// save that failed last. From failure to failure: one that is tried again just now may work.
SaveTrouble trouble_of(const SaveOutage& outage, double most_s, Code last);

// What a run ends with that cannot save, by the worst trouble of all ranks, so the same on each,
// also where a rank's own save was well or has not ended yet: it may be started again, whatever
// stopped its engine.
Code end_code(SaveTrouble any);

struct RankFlags {
  bool stop = false;       // this rank was asked to stop
  bool save_busy = false;  // its checkpoint engine still writes
  SaveTrouble trouble = SaveTrouble::kNone;
  bool save_time = false;      // one is due by rank 0's clock
  bool snapshot_busy = false;  // a snapshot in memory is under way
  int64_t snapshot_step = -1;  // newest one that is complete

  // As they travel.
  std::array<double, layout::kRankFlags> row() const {
    return {stop ? 1.0 : 0.0,      save_busy ? 1.0 : 0.0,     static_cast<double>(trouble),
            save_time ? 1.0 : 0.0, snapshot_busy ? 1.0 : 0.0, static_cast<double>(snapshot_step)};
  }
  // Adds those of one more rank, from its row: any rank's; of numbers the most, of snapshot_step
  // the least. `first`: there is none before it.
  void add(const double* row, bool first) {
    stop |= row[0] != 0;
    save_busy |= row[1] != 0;
    trouble = std::max(trouble, static_cast<SaveTrouble>(row[2]));
    save_time |= row[3] != 0;
    snapshot_busy |= row[4] != 0;
    const auto snapshot = static_cast<int64_t>(row[5]);
    snapshot_step = first ? snapshot : std::min(snapshot_step, snapshot);
  }
};

}  // namespace lockstep::core
