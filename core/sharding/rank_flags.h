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
  kFailed,     // it is tried again
  kTooLong,    // saves have failed for checkpoint.outage_minutes
  kDiskFull,   // the same, and the last one for want of room
  kTakenOver,  // another run has started in the same folder: no save of this one can succeed
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
  bool stop = false;                         // this rank was asked to stop; merged by or
  bool change = false;                       // ... to end for a planned change [P24]; or
  bool save_busy = false;                    // its checkpoint engine still writes; or
  SaveTrouble trouble = SaveTrouble::kNone;  // the maximum
  bool save_time = false;                    // one is due by rank 0's clock; or
  bool snapshot_busy = false;                // a snapshot in memory is under way; or
  int64_t snapshot_step = -1;                // newest one that is complete; the minimum

  // As they travel.
  using Words = std::array<uint64_t, layout::kRankFlags>;
  Words words() const {
    const uint64_t asked = (stop ? kStop : 0) | (change ? kChange : 0);
    return {asked,     save_busy,     static_cast<uint64_t>(trouble),
            save_time, snapshot_busy, static_cast<uint64_t>(snapshot_step)};
  }
  static RankFlags of(const uint64_t* words) {
    return {(words[0] & kStop) != 0,
            (words[0] & kChange) != 0,
            words[1] != 0,
            static_cast<SaveTrouble>(words[2]),
            words[3] != 0,
            words[4] != 0,
            static_cast<int64_t>(words[5])};
  }
  // Together with those of another rank: any one's; the worst trouble, the least snapshot_step.
  void add(const RankFlags& other) {
    stop |= other.stop;
    change |= other.change;
    save_busy |= other.save_busy;
    trouble = std::max(trouble, other.trouble);
    save_time |= other.save_time;
    snapshot_busy |= other.snapshot_busy;
    snapshot_step = std::min(snapshot_step, other.snapshot_step);
  }

 private:
  static constexpr uint64_t kStop = 1, kChange = 2;  // of the first word
};

}  // namespace lockstep::core
