// FileSystem: the one seam between Lockstep and disks. Tests put faults in front of it; lint bans
// raw calls elsewhere. Every error message names the path.
// Thread: an implementation may be called from several threads; one File belongs to one thread at
// a time, except read_at, which may run in parallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {
inline namespace base {

// Address, offset and size of what may bypass the page cache are multiples of this.
inline constexpr size_t kBlockBytes = 4096;

// What is written through the page cache, and sync, go through one descriptor from open to close:
// an error the kernel reports to another descriptor would be lost.
class File {
 public:
  virtual ~File() = default;
  // Writes all of `bytes` at `offset`. Errors: kNoSpace, kIo.
  virtual Result<void> write_at(std::span<const std::byte> bytes, int64_t offset) = 0;
  // Reads exactly bytes.size(). Errors: kCorrupt when the file ends before that, kIo.
  virtual Result<void> read_at(std::span<std::byte> bytes, int64_t offset) = 0;
  virtual Result<int64_t> size_bytes() = 0;
  virtual Result<void> truncate(int64_t size_bytes) = 0;
  // As truncate, and the space is taken now, so that no later write inside it can lack any.
  // Errors: kNoSpace, kIo.
  virtual Result<void> allocate(int64_t size_bytes) { return truncate(size_bytes); }
  // fsync. A failure is final for this file: what was written may be lost already.
  virtual Result<void> sync() = 0;
  // Starts writing back [offset, offset+length) without waiting; a hint.
  virtual void start_writeback(int64_t offset, int64_t length) = 0;
};

class FileSystem {
 public:
  using Path = std::filesystem::path;
  virtual ~FileSystem() = default;
  // Creates or truncates; readable and writable. A link there is replaced. Errors: kIo, kNoSpace.
  virtual Result<std::unique_ptr<File>> create(const Path& path) = 0;
  // Readable, and writable where permissions allow. Errors: kNotFound, kIo.
  virtual Result<std::unique_ptr<File>> open(const Path& path) = 0;
  // The same, for large files that are read or written once: an access of whole blocks
  // (kBlockBytes) bypasses the page cache where the file system can. Any other access may be mixed
  // in.
  virtual Result<std::unique_ptr<File>> create_direct(const Path& path) { return create(path); }
  // create, of a file that only this user may read (mode 0600) where files have such modes.
  virtual Result<std::unique_ptr<File>> create_private(const Path& path) { return create(path); }
  virtual Result<std::unique_ptr<File>> open_direct(const Path& path) { return open(path); }
  virtual Result<void> make_directories(const Path& path) = 0;
  virtual Result<void> rename(const Path& from, const Path& to) = 0;
  virtual Result<void> remove(const Path& path) = 0;  // file or empty directory
  virtual Result<std::vector<std::string>> list(const Path& directory) = 0;  // sorted names
  virtual Result<void> sync_directory(const Path& directory) = 0;
  virtual bool exists(const Path& path) = 0;
  // Whether the last part of `path` is a symbolic link, dangling or not.
  virtual bool is_link(const Path& path) = 0;
  virtual Result<int64_t> free_bytes(const Path& path) = 0;
  // When `path` was last written, by the clock of whoever keeps it. Errors: kNotFound, kIo (where
  // nobody keeps it, too).
  virtual Result<int64_t> written_unix_ns(const Path& path);
};

// The machine's own files (POSIX). One for the process.
FileSystem& posix_file_system();

// The whole file as a string. Errors: kNotFound, kIo.
Result<std::string> read_file(FileSystem& file_system, const std::filesystem::path& path);
// A pipe, or a file of /proc or /sys: its size is known only once it is read. Errors: kNotFound,
// kDenied, kIo; kConfig beyond `most_bytes`.
Result<std::string> read_stream(const std::filesystem::path& path,
                                size_t most_bytes = size_t{1} << 24);
// Whether `contents` (a file, or its beginning) is what `git clone` leaves in a file's place where
// git-lfs is not installed; and the kConfig error that says so of `path`.
inline constexpr size_t kLfsStartBytes = 38;
bool is_lfs_pointer(std::string_view contents);
Error lfs_pointer_error(const std::filesystem::path& path);
enum class Readers { kAll, kOwner };  // who may read a file, as far as the umask lets them
// A final name is a promise: path.tmp, write, fsync, rename, fsync of the directory.
Result<void> publish_file(FileSystem& file_system, const std::filesystem::path& path,
                          std::string_view contents, Readers readers = Readers::kAll);
// Makes `path` and the directories above it that are missing; all of them survive power loss.
Result<void> make_durable_directories(FileSystem& file_system, const std::filesystem::path& path);
// Removes a directory (or a file) and what is in it, files first; symbolic links are not followed.
// Missing is fine.
Result<void> remove_tree(FileSystem& file_system, const std::filesystem::path& path);

inline std::span<const std::byte> as_bytes(std::string_view s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}

}  // namespace base
}  // namespace lockstep
