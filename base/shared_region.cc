#include "base/shared_region.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "base/text.h"

namespace lockstep {
inline namespace base {
namespace {

Error failed(const char* what) {
  return Error{Code::kIo, text("shared memory: ", what, ": ", std::strerror(errno))};
}

// The creator holds this lock on its open file for as long as it lives.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

Result<SharedRegion> SharedRegion::create(size_t bytes) {
  SharedRegion region;
  region.file_ = memfd_create("lockstep", MFD_CLOEXEC);
  if (region.file_ < 0) return failed("memfd_create");
  if (ftruncate(region.file_, static_cast<off_t>(bytes)) != 0) return failed("ftruncate");
  struct flock lock = whole_file();
  if (fcntl(region.file_, F_OFD_SETLK, &lock) != 0) return failed("lock");
  LOCKSTEP_RETURN_IF_ERROR(region.map(bytes));
  return region;
}

Result<SharedRegion> SharedRegion::open(const std::string& address) {
  int pid = 0, file = 0;
  unsigned long long inode = 0;
  if (std::sscanf(address.c_str(), "%d:%d:%llu", &pid, &file, &inode) != 3)
    return Error{Code::kIo, text("shared memory: no address: \"", address, "\"")};
  SharedRegion region;
  region.file_ = ::open(text("/proc/", pid, "/fd/", file).c_str(), O_RDWR | O_CLOEXEC);
  if (region.file_ < 0) return failed("open");
  struct stat about {};
  if (fstat(region.file_, &about) != 0) return failed("stat");
  // The same number may be another process on another machine.
  if (about.st_ino != inode)
    return Error{Code::kIo,
                 text("shared memory: ", address,
                      " is not the shared memory of a Lockstep process on this machine")};
  LOCKSTEP_RETURN_IF_ERROR(region.map(static_cast<size_t>(about.st_size)));
  return region;
}

Result<void> SharedRegion::map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (memory == MAP_FAILED) return failed("map");
  madvise(memory, bytes, MADV_DONTDUMP);  // a core file would have all its addresses
  data_ = static_cast<std::byte*>(memory);
  size_ = bytes;
  return {};
}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedRegion::~SharedRegion() {
  if (data_ != nullptr) munmap(data_, size_);
  if (file_ >= 0) close(file_);
}

std::string SharedRegion::address() const {
  struct stat about {};
  fstat(file_, &about);
  return text(getpid(), ":", file_, ":", about.st_ino);
}

bool SharedRegion::creator_lives() const {
  struct flock lock = whole_file();
  return fcntl(file_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

void wait_while(const std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_ns) {
  static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(word) == sizeof(uint32_t));
  const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace base
}  // namespace lockstep
