#include "launcher/host/scratch_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/environment.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep::launcher {
namespace {

// A temporary folder that several machines share has no locks between them.
std::string prefix() { return text("lockstep-", hex64(xxh3_64(host_name())).substr(0, 8), "-"); }

constexpr size_t kTrialBytes = 4096;

// TMPDIR is the user's to mend: no such folder, a read-only one, one without room.
Error unusable(const std::filesystem::path& path, Code code, const std::string& why) {
  return {
      code == Code::kNoSpace ? Code::kNoSpace : Code::kConfig,
      text("the temporary folder ", path.string(), " cannot be used: ", why,
           code == Code::kNoSpace ? "; make room there, or set TMPDIR to a folder with room"
                                  : "; set TMPDIR to a folder that is there and can be written")};
}

// A full folder still takes a name.
Result<void> try_to_write(const std::filesystem::path& folder) {
  const auto trial = folder / "trial";
  auto done = publish_file(posix_file_system(), trial, std::string(kTrialBytes, '\0'));
  if (done) done = posix_file_system().remove(trial);
  return done;
}

// -1, with errno: it is another process's, or not there, or no folder, or there are no locks.
int lock(const std::filesystem::path& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0 || ::flock(folder, LOCK_EX | LOCK_NB) == 0) return folder;
  const int error = errno;
  ::close(folder);
  errno = error;
  return -1;
}

bool is_at(int folder, const std::filesystem::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(folder, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

bool is_own(const std::filesystem::path& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
         found.st_uid == ::geteuid();
}

void remove_folder(const std::filesystem::path& path) {
  if (const auto removed = remove_tree(posix_file_system(), path); !removed)
    log_warning(removed.error().message);
}

// Those of processes that were killed.
void sweep(const std::filesystem::path& parent) {
  std::error_code error;
  const std::string ours = prefix();
  for (std::filesystem::directory_iterator at(parent, error), end; !error && at != end;
       at.increment(error)) {
    if (!at->path().filename().string().starts_with(ours) || !is_own(at->path())) continue;
    const int folder = lock(at->path());
    if (folder < 0) continue;
    remove_folder(at->path());
    ::close(folder);
  }
}

// Nothing: a sweep of another process took it before it was locked. -1: there are no locks.
std::optional<int> lock_new(const std::filesystem::path& path) {
  const int folder = lock(path);
  if (folder < 0) return errno == EWOULDBLOCK || errno == ENOENT ? std::nullopt : std::optional(-1);
  if (is_at(folder, path)) return folder;
  ::close(folder);
  return std::nullopt;
}

}  // namespace

Result<ScratchFolder> ScratchFolder::create() {
  std::error_code error;
  const auto parent = std::filesystem::temp_directory_path(error);
  if (error) {
    const Environment environment = own_environment();
    const auto named = environment.find("TMPDIR");
    return unusable(named == environment.end() ? parent.string() : named->second, Code::kConfig,
                    error.message());
  }
  sweep(parent);
  while (true) {
    std::string name = (parent / (prefix() + "XXXXXX")).string();
    if (::mkdtemp(name.data()) == nullptr) {  // mode 0700
      const bool full = errno == ENOSPC || errno == EDQUOT;
      return unusable(parent, full ? Code::kNoSpace : Code::kConfig, std::strerror(errno));
    }
    const std::optional<int> locked = lock_new(name);
    if (!locked) continue;
    ScratchFolder made(name, *locked);
    if (const auto tried = try_to_write(made.path()); !tried)
      return unusable(parent, tried.error().code, tried.error().message);
    return made;
  }
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}

ScratchFolder::~ScratchFolder() {
  if (!path_.empty()) remove_folder(path_);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace lockstep::launcher
