#include "base/host_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/file_system.h"
#include "base/hash.h"
#include "base/text.h"

namespace lockstep {
inline namespace base {

int64_t kernel_bytes(const std::filesystem::path& path, const std::string& name) {
  const auto lines = read_stream(path);
  if (!lines.ok()) return -1;
  const std::string key = name + ":";
  const size_t at = lines.value().find(key);
  if (at == std::string::npos) return -1;
  return std::strtoll(lines.value().c_str() + at + key.size(), nullptr, 10) * 1024;
}

namespace {

using Path = std::filesystem::path;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// The number that a file of the kernel begins with; none in "max", and -1 without the file.
int64_t number_in(const Path& path) {
  const auto contents = read_stream(path);
  if (!contents.ok()) return -1;
  char* end = nullptr;
  const int64_t number = std::strtoll(contents.value().c_str(), &end, 10);
  return end == contents.value().c_str() ? kNoLimit : number;
}

// The number after `name` and a blank, of a file of such lines; 0 where there is none.
int64_t number_after(const Path& path, const std::string& name) {
  const auto contents = read_stream(path);
  if (!contents.ok()) return 0;
  for (const std::string& line : split(contents.value(), '\n'))
    if (line.starts_with(name + " ")) return std::strtoll(line.c_str() + name.size(), nullptr, 10);
  return 0;
}

// The names of the two versions of cgroups.
struct CgroupFiles {
  const char *limit, *usage, *stat_inactive;
};
constexpr CgroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file"};
constexpr CgroupFiles kVersion2{"memory.max", "memory.current", "inactive_file"};

// Under the limits of this group and of those above it, up to `top`. File pages that nobody uses
// are given back first, so they count as free.
int64_t left_in_group(const Path& top, const std::string& group, const CgroupFiles& files) {
  int64_t least = kNoLimit;
  for (Path at = top / Path(group).relative_path();; at = at.parent_path()) {
    const int64_t limit = number_in(at / files.limit), usage = number_in(at / files.usage);
    if (limit >= 0 && limit < kNoLimit && usage >= 0)
      least = std::min(
          least, std::max<int64_t>(
                     0, limit - usage + number_after(at / "memory.stat", files.stat_inactive)));
    if (at == top || !at.has_relative_path()) return least;
  }
}

}  // namespace

int64_t available_memory_bytes(const Path& root) {
  const int64_t of_host = kernel_bytes(root / "proc/meminfo", "MemAvailable");
  const auto groups = read_stream(root / "proc/self/cgroup");
  if (!groups.ok() || of_host < 0) return of_host;
  int64_t least = of_host;
  for (const std::string& line : split(groups.value(), '\n')) {  // number:controllers:group
    const auto words = split(line, ':');
    if (words.size() != 3) continue;
    if (words[1].empty())
      least = std::min(least, left_in_group(root / "sys/fs/cgroup", words[2], kVersion2));
    else if (words[1] == "memory")
      least = std::min(least, left_in_group(root / "sys/fs/cgroup/memory", words[2], kVersion1));
  }
  return least;
}

int64_t processes_ended_for_memory(const Path& root) {
  return number_after(root / "proc/vmstat", "oom_kill");
}

Result<void> make_owned_directory(const std::filesystem::path& path) {
  const auto failed = [&] {
    return Error{Code::kIo, text("make directory ", path.string(), ": ", std::strerror(errno))};
  };
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return failed();
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return failed();
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)
    return Error{Code::kConfig, text(path.string(),
                                     " is there already and is not a folder of "
                                     "this user alone (mode 0700)")};
  return {};
}

Result<std::string> directory_identity(const std::filesystem::path& path) {
  LOCKSTEP_TRY(std::string boot, read_stream("/proc/sys/kernel/random/boot_id"));
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    return Error{Code::kIo, text("stat ", path.string(), ": ", std::strerror(errno))};
  return text(boot.substr(0, boot.find('\n')), ":", status.st_dev, ":", status.st_ino);
}

Result<uint64_t> random_number() {
  LOCKSTEP_TRY(const std::string uuid, read_stream("/proc/sys/kernel/random/uuid"));
  return xxh3_64(uuid);
}

}  // namespace base
}  // namespace lockstep
