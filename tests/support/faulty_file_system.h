// FaultyFileSystem: the machine's file system (or any other) with faults put in front of it.
//
//   FaultyFileSystem disk(posix_file_system());
//   disk.set_plan({.op = Op::kWrite, .at_call = 3, .fault = Fault::kNoSpace});
//   ... run ...; disk.calls(Op::kWrite) says how many calls a run without faults makes.
//
// Calls count from 1 since the last set_plan. Thread-safe. Its files borrow it, and what is behind.
#pragma once

#include <signal.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/text.h"

namespace lockstep::test_support {

enum class Op {  // kAny counts all of the others
  // clang-format off
  kAny, kCreate, kOpen, kWrite, kRead, kTruncate, kSync,
  kMakeDirectories, kRename, kRemove, kList, kSyncDirectory,
  // clang-format on
};
inline constexpr size_t kOpCount = 12;

enum class Fault {
  kNone,
  kIoError,         // kIo, nothing done
  kNoSpace,         // kNoSpace, nothing done
  kShortWrite,      // a write does its first half, then kIo; as kIoError elsewhere
  kKill,            // SIGKILL to this process before the call
  kShortWriteKill,  // a write does its first half, then SIGKILL; as kKill elsewhere
  kPause,           // SIGSTOP to this process; after SIGCONT the call is made
  kHold,            // the call waits until the next set_plan
};

class FaultyFileSystem final : public FileSystem {
 public:
  struct Plan {
    Op op = Op::kAny;
    int64_t at_call = 0;  // the k-th call of `op`, from 1; 0: never
    Fault fault = Fault::kNone;
    bool and_after = false;   // every later call of `op` as well; whole, not in halves
    int64_t byte_limit = -1;  // writes beyond this many bytes in all: kNoSpace; -1: no limit
    int64_t delay_ns = 0;     // slept before each call of `op`
  };
  explicit FaultyFileSystem(FileSystem& behind) : behind_(behind) {}
  FaultyFileSystem(FileSystem& behind, Plan plan) : behind_(behind), plan_(plan) {}
  // Calls that are held end first: whoever made them may have given them up.
  ~FaultyFileSystem() override {
    set_plan({});
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return held_ == 0; });
  }

  void set_plan(Plan plan) {
    std::lock_guard lock(mutex_);
    plan_ = plan;
    calls_ = {};
    written_bytes_ = 0;
    ++plans_;
    changed_.notify_all();
  }
  int64_t calls(Op op) const {
    std::lock_guard lock(mutex_);
    return calls_[static_cast<size_t>(op)];
  }
  int64_t written_bytes() const {
    std::lock_guard lock(mutex_);
    return written_bytes_;
  }

  Result<std::unique_ptr<File>> create(const Path& path) override {
    LOCKSTEP_RETURN_IF_ERROR(on_call(Op::kCreate, path));
    return wrap(path, behind_.create(path));
  }
  Result<std::unique_ptr<File>> open(const Path& path) override {
    LOCKSTEP_RETURN_IF_ERROR(on_call(Op::kOpen, path));
    return wrap(path, behind_.open(path));
  }
  Result<std::unique_ptr<File>> create_direct(const Path& path) override {
    LOCKSTEP_RETURN_IF_ERROR(on_call(Op::kCreate, path));
    return wrap(path, behind_.create_direct(path));
  }
  Result<std::unique_ptr<File>> open_direct(const Path& path) override {
    LOCKSTEP_RETURN_IF_ERROR(on_call(Op::kOpen, path));
    return wrap(path, behind_.open_direct(path));
  }
  Result<void> make_directories(const Path& path) override {
    LOCKSTEP_RETURN_IF_ERROR(on_call(Op::kMakeDirectories, path));
    return behind_.make_directories(path);
  }
  Result<void> rename(const Path& from, const Path& to) override {
    LOCKSTEP_RETURN_IF_ERROR(on_call(Op::kRename, from));
    return behind_.rename(from, to);
  }
  Result<void> remove(const Path& path) override {
    LOCKSTEP_RETURN_IF_ERROR(on_call(Op::kRemove, path));
    return behind_.remove(path);
  }
  Result<std::vector<std::string>> list(const Path& directory) override {
    LOCKSTEP_RETURN_IF_ERROR(on_call(Op::kList, directory));
    return behind_.list(directory);
  }
  Result<void> sync_directory(const Path& directory) override {
    LOCKSTEP_RETURN_IF_ERROR(on_call(Op::kSyncDirectory, directory));
    return behind_.sync_directory(directory);
  }
  bool exists(const Path& path) override { return behind_.exists(path); }
  bool is_link(const Path& path) override { return behind_.is_link(path); }
  Result<int64_t> free_bytes(const Path& path) override {
    LOCKSTEP_TRY(const int64_t real_bytes, behind_.free_bytes(path));
    std::lock_guard lock(mutex_);
    if (plan_.byte_limit < 0) return real_bytes;
    return std::min(real_bytes, std::max<int64_t>(0, plan_.byte_limit - written_bytes_));
  }

 private:
  class FaultyFile;

  Result<std::unique_ptr<File>> wrap(const Path& path, Result<std::unique_ptr<File>> opened);

  // Counts the call and meets the planned fault; *half says that half of a write comes first.
  Result<void> on_call(Op op, const Path& path, Fault* half = nullptr);
  Result<void> fail(Fault fault, const Path& path, int64_t call);
  void hold(std::unique_lock<std::mutex>& lock);  // until the next plan
  // How many of `size` bytes still fit under the limit; they are counted as written.
  size_t take_bytes(size_t size);

  FileSystem& behind_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t plans_ = 0, held_ = 0;  // held_: calls
  Plan plan_;
  std::array<int64_t, kOpCount> calls_{};
  int64_t written_bytes_ = 0;
};

}  // namespace lockstep::test_support

#include "tests/support/faulty_file_system_inl.h"
