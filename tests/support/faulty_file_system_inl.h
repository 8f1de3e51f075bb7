// The bodies of faulty_file_system.h; included by it alone.
#pragma once

#include "tests/support/faulty_file_system.h"

namespace lockstep::test_support {

class FaultyFileSystem::FaultyFile final : public File {
 public:
  FaultyFile(FaultyFileSystem& disk, Path path, std::unique_ptr<File> behind)
      : disk_(disk), path_(std::move(path)), behind_(std::move(behind)) {}

  Result<void> write_at(std::span<const std::byte> bytes, int64_t offset) override {
    Fault half = Fault::kNone;
    LOCKSTEP_RETURN_IF_ERROR(disk_.on_call(Op::kWrite, path_, &half));
    if (half != Fault::kNone) {
      const size_t done = disk_.take_bytes(bytes.size() / 2);
      LOCKSTEP_RETURN_IF_ERROR(behind_->write_at(bytes.first(done), offset));
      return disk_.fail(half, path_, disk_.calls(Op::kWrite));
    }
    const size_t fits = disk_.take_bytes(bytes.size());
    LOCKSTEP_RETURN_IF_ERROR(behind_->write_at(bytes.first(fits), offset));
    if (fits < bytes.size()) return disk_.fail(Fault::kNoSpace, path_, disk_.calls(Op::kWrite));
    return {};
  }
  Result<void> read_at(std::span<std::byte> bytes, int64_t offset) override {
    LOCKSTEP_RETURN_IF_ERROR(disk_.on_call(Op::kRead, path_));
    return behind_->read_at(bytes, offset);
  }
  Result<int64_t> size_bytes() override { return behind_->size_bytes(); }
  Result<void> truncate(int64_t size_bytes) override {
    LOCKSTEP_RETURN_IF_ERROR(disk_.on_call(Op::kTruncate, path_));
    return behind_->truncate(size_bytes);
  }
  Result<void> allocate(int64_t size_bytes) override {
    LOCKSTEP_RETURN_IF_ERROR(disk_.on_call(Op::kTruncate, path_));
    return behind_->allocate(size_bytes);
  }
  Result<void> sync() override {
    LOCKSTEP_RETURN_IF_ERROR(disk_.on_call(Op::kSync, path_));
    return behind_->sync();
  }
  void start_writeback(int64_t offset, int64_t length) override {
    behind_->start_writeback(offset, length);
  }

 private:
  FaultyFileSystem& disk_;
  const Path path_;
  const std::unique_ptr<File> behind_;
};

inline Result<std::unique_ptr<File>> FaultyFileSystem::wrap(const Path& path,
                                                            Result<std::unique_ptr<File>> opened) {
  if (!opened.ok()) return opened;
  return std::unique_ptr<File>(
      std::make_unique<FaultyFile>(*this, path, std::move(opened).value()));
}

inline size_t FaultyFileSystem::take_bytes(size_t size) {
  std::lock_guard lock(mutex_);
  if (plan_.byte_limit >= 0)
    size = std::min(size,
                    static_cast<size_t>(std::max<int64_t>(0, plan_.byte_limit - written_bytes_)));
  written_bytes_ += static_cast<int64_t>(size);
  return size;
}

inline Result<void> FaultyFileSystem::fail(Fault fault, const Path& path, int64_t call) {
  if (fault == Fault::kKill || fault == Fault::kShortWriteKill) ::raise(SIGKILL);
  const bool full = fault == Fault::kNoSpace;
  return Error{full ? Code::kNoSpace : Code::kIo,
               text(path.string(), ": injected ", full ? "No space left on device" : "I/O error",
                    " at call ", call)};
}

inline void FaultyFileSystem::hold(std::unique_lock<std::mutex>& lock) {
  ++held_;
  changed_.wait(lock, [&, plan = plans_] { return plans_ != plan; });
  --held_;
  changed_.notify_all();
}

inline Result<void> FaultyFileSystem::on_call(Op op, const Path& path, Fault* half) {
  Fault fault = Fault::kNone;
  int64_t call = 0, delay_ns = 0;
  bool first = false;
  {
    std::unique_lock lock(mutex_);
    ++calls_[static_cast<size_t>(Op::kAny)];
    ++calls_[static_cast<size_t>(op)];
    call = calls_[static_cast<size_t>(plan_.op)];
    const bool planned = plan_.op == Op::kAny || plan_.op == op;
    if (planned) delay_ns = plan_.delay_ns;
    const bool due = call == plan_.at_call || (plan_.and_after && call > plan_.at_call);
    if (planned && plan_.at_call > 0 && due) fault = plan_.fault;
    first = call == plan_.at_call;
    if (fault == Fault::kHold) hold(lock);
  }
  if (delay_ns > 0) system_clock().sleep_ns(delay_ns);
  if (fault == Fault::kPause) ::raise(SIGSTOP);
  if (fault == Fault::kNone || fault == Fault::kHold || fault == Fault::kPause) return {};
  const bool in_halves = fault == Fault::kShortWrite || fault == Fault::kShortWriteKill;
  if (half != nullptr && first && in_halves) {
    *half = fault;
    return {};
  }
  return fail(fault, path, call);
}

}  // namespace lockstep::test_support
