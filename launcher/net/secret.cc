#include "launcher/net/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "launcher/net/mac.h"

namespace lockstep::launcher::net {
namespace {

constexpr char kFileName[] = "control.secret";
constexpr size_t kDigits = 2 * Secret::kBytes;

Error failed(const char* what, const std::filesystem::path& path) {
  const bool full = errno == ENOSPC || errno == EDQUOT;
  return {full ? Code::kNoSpace : Code::kIo,
          text(what, " ", path.string(), ": ", std::strerror(errno))};
}

// A descriptor that goes with its scope.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// Whoever could read or replace it could join the job.
Result<void> check_private(int fd, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return failed("stat", path);
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid())
    return Error{Code::kConfig, text(path.string(),
                                     " is not a regular file of this user, so it is not used as "
                                     "the job's secret; remove it")};
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return Error{Code::kConfig, text("other users may open ", path.string(),
                                     ", so it does not protect the job; remove it (a new one is "
                                     "made) or run chmod 600 on it")};
  return {};
}

// kNotFound when there is none.
Result<Secret> read_secret(const std::filesystem::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  if (file.fd < 0 && errno == ENOENT) return Error{Code::kNotFound, text("no ", path.string())};
  if (file.fd < 0) return failed("open", path);
  LOCKSTEP_RETURN_IF_ERROR(check_private(file.fd, path));
  char words[kDigits + 2];
  const ssize_t size = ::read(file.fd, words, sizeof words);
  if (size < 0) return failed("read", path);
  std::string digits(words, static_cast<size_t>(size));
  while (digits.ends_with('\n')) digits.pop_back();
  return Secret::parse(digits, path.string());
}

Result<void> write_whole(const std::filesystem::path& path, const std::string& words) {
  const Descriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  if (file.fd < 0) return failed("create", path);
  if (::write(file.fd, words.data(), words.size()) != static_cast<ssize_t>(words.size()) ||
      ::fsync(file.fd) != 0)
    return failed("write", path);
  return {};
}

// link() makes the name only if it is not there, as O_EXCL does, and the file is whole by then.
Result<void> make_secret(const std::filesystem::path& path) {
  unsigned char unique[8];
  fill_random(unique);
  uint64_t number;
  std::memcpy(&number, unique, sizeof number);
  std::filesystem::path temporary = path;
  temporary += text(".", number);
  Result<void> made = write_whole(temporary, Secret::generate().hex() + "\n");
  if (made && ::link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST)
    made = failed("make", path);
  ::unlink(temporary.c_str());
  return made;
}

}  // namespace

Secret Secret::generate() {
  Secret secret;
  fill_random(secret.bytes_);
  return secret;
}

Result<Secret> Secret::parse(const std::string& hex_digits, std::string origin) {
  Secret secret;
  if (!read_hex_digits(hex_digits, secret.bytes_))
    return Error{Code::kConfig, text(origin, ": a job's secret must be ", kDigits,
                                     " hexadecimal digits, for "
                                     "example from `openssl rand -hex ",
                                     kBytes, "`")};
  secret.origin_ = std::move(origin);
  return secret;
}

Result<Secret> Secret::of_file(const std::filesystem::path& path) {
  auto secret = read_secret(path);
  if (secret || secret.error().code != Code::kNotFound) return secret;
  LOCKSTEP_RETURN_IF_ERROR(make_secret(path));
  return read_secret(path);
}

Result<Secret> Secret::of_job(const std::map<std::string, std::string>& environment,
                              const std::filesystem::path& run_folder) {
  const auto found = environment.find(kSecretVariable);
  if (found == environment.end()) return of_file(run_folder / kFileName);
  return parse(found->second, kSecretVariable);
}

Secret::~Secret() { wipe(bytes_); }

std::string Secret::hex() const { return hex_digits(bytes_); }

}  // namespace lockstep::launcher::net
