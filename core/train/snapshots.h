// The second tier as the trainer sees it: snapshots of the state in host memory, every few steps.
// A snapshot begins when the one before it has ended on every rank, which all learn from the
// step's own words (RankFlags), so that all decide alike; else it is skipped and counted.
// Thread: the training thread. Borrows what its options name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/snapshot/memory_tier.h"
#include "config/config.h"
#include "core/comm/buddies.h"
#include "core/comm/communicator.h"
#include "core/comm/shared_store.h"
#include "core/train/memory_place.h"
#include "core/train/resume.h"
#include "core/train/state_pieces.h"

namespace lockstep::core {

class Snapshots {
 public:
  struct Options {
    FileSystem& file_system;
    const Config& config;
    const MemoryPlace& place;
    const Resumed& resumed;
    SharedStore& store;
    Communicator& comm;  // of all ranks
    Buddies* buddies;    // null: none
    LiveState& live;
  };
  struct Totals {  // of this process
    int64_t complete = 0, failed = 0, skipped = 0;
    int64_t last_step = -1;  // newest one that is complete on every rank
    double stall_s = 0;      // seconds that training stood still for snapshots
    double copy_s = 0, buddy_s = 0;
  };

  // Removes what older generations left, except the snapshot that was resumed from where it fits
  // beside the new ones, and takes the memory. Collective. Errors: kConfig (too little memory on a
  // node, in GiB), kIo, communication.
  static Result<std::unique_ptr<Snapshots>> create(Options options);

  // Adds this rank's words.
  void say(RankFlags& flags) const;
  // Before LiveState::thaw.
  void wait_read();
  // After step `step`, of which all ranks said `any`. Begins a snapshot when one is due and
  // `may_begin`. `disk_step`: the newest committed one. `copy` is asked for one of the same state,
  // which a save of this step makes: it is read in place of the live one.
  void after_step(int64_t step, const RankFlags& any, bool may_begin, int64_t disk_step,
                  const std::string& trainer_state,
                  const std::function<std::unique_ptr<checkpoint::StateSource>()>& copy);
  // [P25] Takes the snapshot of `step`, waits until it has ended on every rank, and says whether
  // the memory of the nodes holds it. The state does not change meanwhile. The rest as in
  // after_step. Collective. Errors: communication.
  Result<bool> hold(int64_t step, const RankFlags& any, int64_t disk_step,
                    const std::string& trainer_state,
                    const std::function<std::unique_ptr<checkpoint::StateSource>()>& copy);
  const Totals& totals() const { return totals_; }
  // The run is over and saved: gives the memory back.
  void remove() { tier_->remove(); }

 private:
  explicit Snapshots(Options options) : options_(options) {}
  Result<void> make_room(const std::vector<int64_t>& slot_bytes);
  void take_reports();
  void begin(int64_t step, const RankFlags& any, int64_t disk_step,
             const std::string& trainer_state, std::unique_ptr<checkpoint::StateSource> copy);
  void forget_older();

  Options options_;
  std::vector<int> buddy_of_rank_;  // empty: none
  std::unique_ptr<checkpoint::BuddyLink> link_;
  std::unique_ptr<checkpoint::MemoryTier> tier_;
  bool older_left_ = false;  // the snapshot that was resumed from is still there
  Totals totals_;
};

}  // namespace lockstep::core
