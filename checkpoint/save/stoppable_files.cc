#include "checkpoint/save/stoppable_files.h"

#include <chrono>
#include <utility>

namespace lockstep::checkpoint {
namespace {

constexpr std::chrono::milliseconds kSyncPoll{2};

}  // namespace

Result<void> StoppableFiles::Stop::allows() const {
  if (!happened || then == OnceStopped::kGoOn) return {};
  return Error{Code::kAborted, "the engine was stopped"};
}

// A call, while it is under way.
class StoppableFiles::Counted {
 public:
  explicit Counted(const Stop& stop) : calls_(stop.calls) { ++calls_; }
  ~Counted() { ++calls_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int64_t>& calls_;
};

Result<void> StoppableFiles::Stop::await(AbandonableCalls::Call sync) const {
  LOCKSTEP_RETURN_IF_ERROR(allows());
  const Counted call(*this);
  const auto ended = syncs->run(std::move(sync), kSyncPoll, [this] { return happened.load(); });
  return ended ? *ended : allows();
}

class StoppableFiles::StoppableFile final : public File {
 public:
  StoppableFile(std::unique_ptr<File> behind, const Stop& stop)
      : behind_(std::move(behind)), stop_(stop) {}
  ~StoppableFile() override {
    const Counted call(stop_);
    behind_.reset();  // closes
  }

  Result<void> write_at(std::span<const std::byte> bytes, int64_t offset) override {
    LOCKSTEP_RETURN_IF_ERROR(stop_.allows());
    const Counted call(stop_);
    return behind_->write_at(bytes, offset);
  }
  Result<void> read_at(std::span<std::byte> bytes, int64_t offset) override {
    const Counted call(stop_);
    return behind_->read_at(bytes, offset);
  }
  Result<int64_t> size_bytes() override {
    const Counted call(stop_);
    return behind_->size_bytes();
  }
  Result<void> truncate(int64_t size) override {
    const Counted call(stop_);
    return behind_->truncate(size);
  }
  Result<void> allocate(int64_t size) override {
    const Counted call(stop_);
    return behind_->allocate(size);
  }
  Result<void> sync() override {
    return stop_.await([file = behind_] { return file->sync(); });
  }
  void start_writeback(int64_t offset, int64_t length) override {
    const Counted call(stop_);
    behind_->start_writeback(offset, length);
  }

 private:
  std::shared_ptr<File> behind_;
  const Stop stop_;
};

Result<std::unique_ptr<File>> StoppableFiles::wrap(Result<std::unique_ptr<File>> file) const {
  if (!file.ok()) return file;
  return std::unique_ptr<File>(std::make_unique<StoppableFile>(std::move(file).value(), stop_));
}

Result<std::unique_ptr<File>> StoppableFiles::create(const Path& path) {
  LOCKSTEP_RETURN_IF_ERROR(stop_.allows());
  const Counted call(stop_);
  return wrap(behind_.create(path));
}

Result<std::unique_ptr<File>> StoppableFiles::open(const Path& path) {
  const Counted call(stop_);
  return wrap(behind_.open(path));
}

Result<std::unique_ptr<File>> StoppableFiles::create_direct(const Path& path) {
  LOCKSTEP_RETURN_IF_ERROR(stop_.allows());
  const Counted call(stop_);
  return wrap(behind_.create_direct(path));
}

Result<std::unique_ptr<File>> StoppableFiles::open_direct(const Path& path) {
  const Counted call(stop_);
  return wrap(behind_.open_direct(path));
}

Result<void> StoppableFiles::make_directories(const Path& path) {
  LOCKSTEP_RETURN_IF_ERROR(stop_.allows());
  const Counted call(stop_);
  return behind_.make_directories(path);
}

Result<void> StoppableFiles::rename(const Path& from, const Path& to) {
  LOCKSTEP_RETURN_IF_ERROR(stop_.allows());
  const Counted call(stop_);
  return behind_.rename(from, to);
}

Result<void> StoppableFiles::sync_directory(const Path& directory) {
  return stop_.await([&behind = behind_, directory] { return behind.sync_directory(directory); });
}

Result<void> StoppableFiles::remove(const Path& path) {
  const Counted call(stop_);
  return behind_.remove(path);
}

Result<std::vector<std::string>> StoppableFiles::list(const Path& path) {
  const Counted call(stop_);
  return behind_.list(path);
}

bool StoppableFiles::exists(const Path& path) {
  const Counted call(stop_);
  return behind_.exists(path);
}

bool StoppableFiles::is_link(const Path& path) {
  const Counted call(stop_);
  return behind_.is_link(path);
}

Result<int64_t> StoppableFiles::free_bytes(const Path& path) {
  const Counted call(stop_);
  return behind_.free_bytes(path);
}

}  // namespace lockstep::checkpoint
