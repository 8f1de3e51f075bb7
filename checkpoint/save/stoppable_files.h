// A save's file system: once the engine is stopped nobody waits for a sync any more. A disk that is
// slow to sync must not keep a healthy worker from the next generation.
#pragma once

#include <atomic>
#include <memory>
#include <set>

#include "base/abandonable_calls.h"
#include "base/file_system.h"

namespace lockstep::checkpoint {

enum class OnceStopped {
  kFail,  // every write and sync: what is left of the save counts for nothing and is removed
  kGoOn,  // without the syncs: for what is a help only, beside a checkpoint that is committed
};

// Borrows what it is made with; a sync that was left alone borrows the file system for as long as
// it takes.
class StoppableFiles final : public FileSystem {
 public:
  // `calls` moves as each call begins and as it ends: of one thread, it is odd while one is under
  // way.
  StoppableFiles(FileSystem& behind, const std::atomic<bool>& stopped, OnceStopped then,
                 std::atomic<int64_t>& calls)
      : behind_(behind), stop_{stopped, then, calls, std::make_shared<AbandonableCalls>()} {}

  Result<std::unique_ptr<File>> create(const Path& path) override;
  Result<std::unique_ptr<File>> open(const Path& path) override;
  Result<std::unique_ptr<File>> create_direct(const Path& path) override;
  Result<std::unique_ptr<File>> open_direct(const Path& path) override;
  Result<void> make_directories(const Path& path) override;
  Result<void> rename(const Path& from, const Path& to) override;
  Result<void> sync_directory(const Path& directory) override;
  // These go on in any case: they clear up.
  Result<void> remove(const Path& path) override;
  Result<std::vector<std::string>> list(const Path& path) override;
  bool exists(const Path& path) override;
  bool is_link(const Path& path) override;
  Result<int64_t> free_bytes(const Path& path) override;

  // What was made here and would not survive a loss of power: files that were written and not
  // synced since, and folders that have got a name and were not synced since. What was removed does
  // not count. Of one thread.
  const std::set<Path>& unsynced() const { return *unsynced_; }
  void forget_unsynced() { unsynced_->clear(); }

 private:
  struct Stop {
    const std::atomic<bool>& happened;
    OnceStopped then;
    std::atomic<int64_t>& calls;
    std::shared_ptr<AbandonableCalls> syncs;
    Result<void> allows() const;  // what is to be done
    Result<void> await(AbandonableCalls::Call sync) const;
  };
  class Counted;
  class StoppableFile;
  Result<std::unique_ptr<File>> wrap(Result<std::unique_ptr<File>> file, const Path& path) const;
  Result<std::unique_ptr<File>> note_made(Result<std::unique_ptr<File>> file, const Path& path);

  FileSystem& behind_;
  const Stop stop_;
  const std::shared_ptr<std::set<Path>> unsynced_ = std::make_shared<std::set<Path>>();
};

}  // namespace lockstep::checkpoint
