#include "checkpoint/save/stoppable_files.h"

#include <chrono>
#include <utility>

namespace lockstep::checkpoint {
namespace {

constexpr std::chrono::milliseconds kSyncPoll{2};

// One name for a path, however it is written.
std::filesystem::path key_of(const std::filesystem::path& path) {
  const auto normal = path.lexically_normal();
  const auto key = normal.has_filename() ? normal : normal.parent_path();
  return key.empty() ? std::filesystem::path(".") : key;
}
std::filesystem::path folder_key_of(const std::filesystem::path& path) {
  return key_of(key_of(path).parent_path());
}

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
  StoppableFile(std::unique_ptr<File> behind, const Stop& stop, Path key,
                std::shared_ptr<std::set<Path>> unsynced)
      : behind_(std::move(behind)),
        stop_(stop),
        key_(std::move(key)),
        unsynced_(std::move(unsynced)) {}
  ~StoppableFile() override {
    const Counted call(stop_);
    behind_.reset();  // closes
  }

  Result<void> write_at(std::span<const std::byte> bytes, int64_t offset) override {
    LOCKSTEP_RETURN_IF_ERROR(stop_.allows());
    const Counted call(stop_);
    unsynced_->insert(key_);
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
    unsynced_->insert(key_);
    return behind_->truncate(size);
  }
  Result<void> allocate(int64_t size) override {
    const Counted call(stop_);
    unsynced_->insert(key_);
    return behind_->allocate(size);
  }
  Result<void> sync() override {
    const auto synced = stop_.await([file = behind_] { return file->sync(); });
    if (synced.ok()) unsynced_->erase(key_);
    return synced;
  }
  void start_writeback(int64_t offset, int64_t length) override {
    const Counted call(stop_);
    behind_->start_writeback(offset, length);
  }

 private:
  std::shared_ptr<File> behind_;
  const Stop stop_;
  const Path key_;
  const std::shared_ptr<std::set<Path>> unsynced_;
};

Result<std::unique_ptr<File>> StoppableFiles::wrap(Result<std::unique_ptr<File>> file,
                                                   const Path& path) const {
  if (!file.ok()) return file;
  return std::unique_ptr<File>(
      std::make_unique<StoppableFile>(std::move(file).value(), stop_, key_of(path), unsynced_));
}

Result<std::unique_ptr<File>> StoppableFiles::note_made(Result<std::unique_ptr<File>> file,
                                                        const Path& path) {
  if (file.ok()) unsynced_->insert({key_of(path), folder_key_of(path)});
  return wrap(std::move(file), path);
}

Result<std::unique_ptr<File>> StoppableFiles::create(const Path& path) {
  LOCKSTEP_RETURN_IF_ERROR(stop_.allows());
  const Counted call(stop_);
  return note_made(behind_.create(path), path);
}

Result<std::unique_ptr<File>> StoppableFiles::open(const Path& path) {
  const Counted call(stop_);
  return wrap(behind_.open(path), path);
}

Result<std::unique_ptr<File>> StoppableFiles::create_direct(const Path& path) {
  LOCKSTEP_RETURN_IF_ERROR(stop_.allows());
  const Counted call(stop_);
  return note_made(behind_.create_direct(path), path);
}

Result<std::unique_ptr<File>> StoppableFiles::open_direct(const Path& path) {
  const Counted call(stop_);
  return wrap(behind_.open_direct(path), path);
}

Result<void> StoppableFiles::make_directories(const Path& path) {
  LOCKSTEP_RETURN_IF_ERROR(stop_.allows());
  const Counted call(stop_);
  unsynced_->insert(folder_key_of(path));
  return behind_.make_directories(path);
}

Result<void> StoppableFiles::rename(const Path& from, const Path& to) {
  LOCKSTEP_RETURN_IF_ERROR(stop_.allows());
  const Counted call(stop_);
  if (unsynced_->erase(key_of(from)) > 0) unsynced_->insert(key_of(to));
  unsynced_->insert(folder_key_of(to));
  return behind_.rename(from, to);
}

Result<void> StoppableFiles::sync_directory(const Path& directory) {
  const auto synced =
      stop_.await([&behind = behind_, directory] { return behind.sync_directory(directory); });
  if (synced.ok()) unsynced_->erase(key_of(directory));
  return synced;
}

Result<void> StoppableFiles::remove(const Path& path) {
  const Counted call(stop_);
  unsynced_->erase(key_of(path));
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
