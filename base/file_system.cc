#include "base/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/text.h"

namespace lockstep {
inline namespace base {
namespace {

using Path = std::filesystem::path;

Error system_error(const char* what, const Path& path, int error) {
  Code code = Code::kIo;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) code = Code::kNoSpace;
  if (error == EACCES || error == EPERM || error == EROFS) code = Code::kDenied;
  if (error == ENOENT || error == ENOTDIR) code = Code::kNotFound;
  return {code, text(what, " ", path.string(), ": ", std::strerror(error))};
}

// Of what needed `wanted_bytes` more.
Error no_room(const char* what, const Path& path, int error, size_t wanted_bytes) {
  const Error said = system_error(what, path, error);
  if (said.code != Code::kNoSpace) return said;
  const char* const lack =
      error == EFBIG ? "beyond a limit on file sizes (`ulimit -f`): " : "disk full: ";
  return {said.code, text(lack, path.string(), ": ", bytes_text(wanted_bytes), " more wanted (",
                          what, ": ", std::strerror(error), ")")};
}

// Calls `call` again while a signal interrupts it.
template <typename Call>
auto uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// Linux moves at most this much in one call.
constexpr size_t kMaxCallBytes = 0x7ffff000;

class PosixFile final : public File {
 public:
  // `direct_fd`: of the same file, past the page cache; -1: none.
  PosixFile(int fd, int direct_fd, Path path)
      : fd_(fd), direct_fd_(direct_fd), path_(std::move(path)) {}
  // close() may report a late write error, but whoever needs the bytes has called sync() before.
  ~PosixFile() override {
    ::close(fd_);
    if (direct_fd_ >= 0) ::close(direct_fd_);
  }

  Result<void> write_at(std::span<const std::byte> bytes, int64_t offset) override {
    while (!bytes.empty()) {
      const size_t size = std::min(bytes.size(), kMaxCallBytes);
      const ssize_t done = moved(bytes.data(), size, offset,
                                 [&](int fd) { return ::pwrite(fd, bytes.data(), size, offset); });
      if (done <= 0) return no_room("write", path_, done == 0 ? EIO : errno, bytes.size());
      bytes = bytes.subspan(static_cast<size_t>(done));
      offset += done;
    }
    return {};
  }

  Result<void> read_at(std::span<std::byte> bytes, int64_t offset) override {
    while (!bytes.empty()) {
      const size_t size = std::min(bytes.size(), kMaxCallBytes);
      const ssize_t done = moved(bytes.data(), size, offset,
                                 [&](int fd) { return ::pread(fd, bytes.data(), size, offset); });
      if (done < 0) return system_error("read", path_, errno);
      if (done == 0)
        return Error{Code::kCorrupt, text("read ", path_.string(), ": the file ends at ", offset,
                                          ", ", bytes.size(), " bytes short")};
      bytes = bytes.subspan(static_cast<size_t>(done));
      offset += done;
    }
    return {};
  }

  Result<int64_t> size_bytes() override {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) return system_error("stat", path_, errno);
    return static_cast<int64_t>(status.st_size);
  }

  Result<void> truncate(int64_t size_bytes) override {
    if (uninterrupted([&] { return ::ftruncate(fd_, size_bytes); }) != 0)
      return system_error("truncate", path_, errno);
    return {};
  }

  Result<void> allocate(int64_t size_bytes) override {
    LOCKSTEP_RETURN_IF_ERROR(truncate(size_bytes));
    if (size_bytes == 0) return {};
    const int error = ::posix_fallocate(fd_, 0, size_bytes);
    if (error == 0) return {};
    return no_room("allocate", path_, error, static_cast<size_t>(size_bytes));
  }

  // After a failed fsync the kernel drops the dirty pages and the next fsync says ok: remember.
  Result<void> sync() override {
    if (sync_errno_ == 0 && uninterrupted([&] { return ::fsync(fd_); }) != 0) sync_errno_ = errno;
    if (sync_errno_ != 0) return system_error("fsync", path_, sync_errno_);
    return {};
  }

  void start_writeback([[maybe_unused]] int64_t offset, [[maybe_unused]] int64_t length) override {
#ifdef __linux__
    if (direct_fd_ < 0) ::sync_file_range(fd_, offset, length, SYNC_FILE_RANGE_WRITE);
#endif
  }

 private:
  // A file system may take O_DIRECT at open and refuse it here (EINVAL): then the cache serves.
  template <typename Call>
  ssize_t moved(const void* address, size_t size, int64_t offset, Call call) {
    const bool blocks =
        (reinterpret_cast<uintptr_t>(address) | size | static_cast<uint64_t>(offset)) %
            kBlockBytes ==
        0;
    if (direct_fd_ >= 0 && blocks) {
      const ssize_t done = uninterrupted([&] { return call(direct_fd_); });
      if (done >= 0 || errno != EINVAL) return done;
    }
    return uninterrupted([&] { return call(fd_); });
  }

  const int fd_, direct_fd_;
  const Path path_;
  int sync_errno_ = 0;
};

enum class Cache { kPages, kBypassed };

int open_descriptor(const Path& path, int flags, mode_t mode = 0666) {
  return uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
}

Result<std::unique_ptr<File>> open_file(const char* what, const Path& path, int flags,
                                        Cache cache = Cache::kPages) {
  const int fd = open_descriptor(path, flags);
  if (fd < 0) return system_error(what, path, errno);
  const int direct_fd = cache == Cache::kBypassed
                            ? open_descriptor(path, (flags & (O_ACCMODE | O_NOFOLLOW)) | O_DIRECT)
                            : -1;
  return std::unique_ptr<File>(std::make_unique<PosixFile>(fd, direct_fd, path));
}

// A data set or a checkpoint of somebody else's may be read-only.
Result<std::unique_ptr<File>> open_existing(const Path& path, Cache cache) {
  const bool writable = ::access(path.c_str(), W_OK) == 0;
  return open_file("open", path, writable ? O_RDWR : O_RDONLY, cache);
}

// Whether writing under this name writes a file that has another name too, or no file.
bool leads_elsewhere(const Path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return false;
  if (S_ISREG(status.st_mode)) return status.st_nlink > 1;
  return S_ISLNK(status.st_mode) || S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
}

// No other file is written than one of this name: a link under it is removed, and not followed.
Result<std::unique_ptr<File>> create_file(const Path& path, Cache cache) {
  if (leads_elsewhere(path) && ::unlink(path.c_str()) != 0 && errno != ENOENT)
    return system_error("remove", path, errno);
  return open_file("create", path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, cache);
}

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> create(const Path& path) override {
    return create_file(path, Cache::kPages);
  }

  Result<std::unique_ptr<File>> open(const Path& path) override {
    return open_existing(path, Cache::kPages);
  }
  Result<std::unique_ptr<File>> create_direct(const Path& path) override {
    return create_file(path, Cache::kBypassed);
  }
  Result<std::unique_ptr<File>> open_direct(const Path& path) override {
    return open_existing(path, Cache::kBypassed);
  }
  // One that is there keeps its mode, so it goes first.
  Result<std::unique_ptr<File>> create_private(const Path& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error("remove", path, errno);
    const int fd = open_descriptor(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) return system_error("create", path, errno);
    return std::unique_ptr<File>(std::make_unique<PosixFile>(fd, -1, path));
  }

  Result<void> make_directories(const Path& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return system_error("make directory", path, error.value());
    return {};
  }

  Result<void> rename(const Path& from, const Path& to) override {
    if (std::rename(from.c_str(), to.c_str()) != 0)
      return system_error("rename", from, errno).in(text("to ", to.string()));
    return {};
  }

  Result<void> remove(const Path& path) override {
    if (std::remove(path.c_str()) != 0) return system_error("remove", path, errno);
    return {};
  }

  Result<std::vector<std::string>> list(const Path& directory) override {
    std::error_code error;
    std::vector<std::string> names;
    std::filesystem::directory_iterator entry(directory, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
      names.push_back(entry->path().filename().string());
    if (error) return system_error("list", directory, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<void> sync_directory(const Path& directory) override {
    const Path path = directory.empty() ? Path(".") : directory;
    LOCKSTEP_TRY(const auto opened, open_file("open", path, O_RDONLY | O_DIRECTORY));
    return opened->sync();
  }

  bool exists(const Path& path) override {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0;
  }

  bool is_link(const Path& path) override {
    struct stat status {};
    return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
  }

  Result<int64_t> free_bytes(const Path& path) override {
    struct statvfs status {};
    if (uninterrupted([&] { return ::statvfs(path.c_str(), &status); }) != 0)
      return system_error("free space of", path, errno);
    return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
  }

  Result<int64_t> written_unix_ns(const Path& path) override {
    constexpr int64_t kSecond_ns = 1'000'000'000;
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return system_error("time of", path, errno);
    return status.st_mtim.tv_sec * kSecond_ns + status.st_mtim.tv_nsec;
  }
};

Result<void> write_and_sync(FileSystem& file_system, const Path& path, std::string_view contents,
                            Readers readers) {
  LOCKSTEP_TRY(const auto file, readers == Readers::kOwner ? file_system.create_private(path)
                                                           : file_system.create(path));
  LOCKSTEP_RETURN_IF_ERROR(file->write_at(as_bytes(contents), 0));
  return file->sync();
}

}  // namespace

Result<int64_t> FileSystem::written_unix_ns(const Path& path) {
  return Error{Code::kIo, text("time of ", path.string(), ": not kept")};
}

FileSystem& posix_file_system() {
  static PosixFileSystem file_system;
  return file_system;
}

bool is_lfs_pointer(std::string_view contents) {
  constexpr std::string_view kStart = "version https://git-lfs.github.com/spec/";
  return contents.starts_with(kStart.substr(0, kLfsStartBytes));
}

Error lfs_pointer_error(const std::filesystem::path& path) {
  return {Code::kConfig, text(path.string(),
                              ": this is a pointer of Git LFS and not the file itself; run `git "
                              "lfs pull` in its repository, or download the file")};
}

Result<std::string> read_file(FileSystem& file_system, const Path& path) {
  LOCKSTEP_TRY(const auto file, file_system.open(path));
  LOCKSTEP_TRY(const int64_t size_bytes, file->size_bytes());
  std::string contents(static_cast<size_t>(size_bytes), '\0');
  LOCKSTEP_RETURN_IF_ERROR(file->read_at(std::as_writable_bytes(std::span(contents)), 0));
  return contents;
}

Result<std::string> read_stream(const Path& path, size_t most_bytes) {
  const int descriptor = open_descriptor(path, O_RDONLY);
  if (descriptor < 0) return system_error("open", path, errno);
  std::string contents;
  char block[4096];
  ssize_t n = 0;
  int error = 0;
  while (contents.size() <= most_bytes) {
    n = uninterrupted([&] { return ::read(descriptor, block, sizeof block); });
    if (n < 0) error = errno;
    if (n <= 0) break;
    contents.append(block, static_cast<size_t>(n));
  }
  ::close(descriptor);
  if (n < 0) return system_error("read", path, error);
  if (contents.size() > most_bytes)
    return Error{Code::kConfig,
                 text("read ", path.string(), ": longer than ", most_bytes, " bytes")};
  return contents;
}

// 1. write path.tmp; 2. fsync it; 3. rename it over path; 4. fsync the directory. A crash before 3
// leaves the old file and a .tmp that the next call overwrites.
Result<void> publish_file(FileSystem& file_system, const Path& path, std::string_view contents,
                          Readers readers) {
  Path temporary = path;
  temporary += ".tmp";
  Result<void> done = write_and_sync(file_system, temporary, contents, readers);
  if (done.ok()) done = file_system.rename(temporary, path);
  if (!done.ok()) {
    (void)file_system.remove(temporary).ok();  // give a full disk its bytes back
    return done;
  }
  return file_system.sync_directory(path.parent_path());
}

Result<void> make_durable_directories(FileSystem& file_system, const Path& path) {
  std::vector<Path> to_sync = {path.parent_path()};  // who made the last one may not have synced it
  while (!to_sync.back().empty() && !file_system.exists(to_sync.back()))
    to_sync.push_back(to_sync.back().parent_path());
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(path));
  for (const Path& directory : to_sync)
    LOCKSTEP_RETURN_IF_ERROR(file_system.sync_directory(directory));
  return {};
}

Result<void> remove_tree(FileSystem& file_system, const Path& path) {
  // A symbolic link is removed here as a name; it is never followed.
  const Result<void> removed = file_system.remove(path);
  if (removed.ok() || removed.error().code == Code::kNotFound) return {};
  if (file_system.is_link(path)) return removed;
  auto names = file_system.list(path);
  if (!names.ok()) return removed;
  for (const std::string& name : names.value())
    LOCKSTEP_RETURN_IF_ERROR(remove_tree(file_system, path / name));
  const Result<void> empty = file_system.remove(path);
  if (!empty.ok() && empty.error().code == Code::kNotFound) return {};
  return empty;
}

}  // namespace base
}  // namespace lockstep
