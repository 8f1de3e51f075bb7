#include "base/host_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/file_system.h"
#include "base/hash.h"
#include "base/text.h"

namespace lockstep {
inline namespace base {

int64_t kernel_bytes(const std::filesystem::path& path, const std::string& name) {
  const auto lines = read_kernel_file(path);
  if (!lines.ok()) return -1;
  const std::string key = name + ":";
  const size_t at = lines.value().find(key);
  if (at == std::string::npos) return -1;
  return std::strtoll(lines.value().c_str() + at + key.size(), nullptr, 10) * 1024;
}

int64_t available_memory_bytes() { return kernel_bytes("/proc/meminfo", "MemAvailable"); }

Result<void> make_owned_directory(const std::filesystem::path& path) {
  const auto failed = [&] {
    return Error{Code::kIo, text("make directory ", path.string(), ": ", std::strerror(errno))};
  };
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return failed();
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return failed();
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)
    return Error{Code::kConfig, text(path.string(), " is there already and is not a folder of "
                                     "this user alone (mode 0700)")};
  return {};
}

Result<std::string> directory_identity(const std::filesystem::path& path) {
  LOCKSTEP_TRY(std::string boot, read_kernel_file("/proc/sys/kernel/random/boot_id"));
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    return Error{Code::kIo, text("stat ", path.string(), ": ", std::strerror(errno))};
  return text(boot.substr(0, boot.find('\n')), ":", status.st_dev, ":", status.st_ino);
}

Result<uint64_t> random_number() {
  LOCKSTEP_TRY(const std::string uuid, read_kernel_file("/proc/sys/kernel/random/uuid"));
  return xxh3_64(uuid);
}

}  // namespace base
}  // namespace lockstep
