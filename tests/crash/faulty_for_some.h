// Faults for the calls that a test is about, where all calls are too many.
#pragma once

#include <string>
#include <utility>

#include "tests/support/faulty_file_system.h"

namespace lockstep::checkpoint::crash {

using lockstep::test_support::FaultyFileSystem;
using lockstep::test_support::Op;

// Has a disk with faults take the calls for files whose names begin with `prefix`, and for the
// directory they are in, and from its fault on all calls. The rest goes to the sound disk.
class FaultyForSome final : public FileSystem {
 public:
  struct Some {
    Path folder;  // of checkpoints: not one of their directories
    std::string prefix;
    int64_t at_call;
  };
  FaultyForSome(FileSystem& sound, FaultyFileSystem& faulty, Some some)
      : sound_(sound), faulty_(faulty), some_(std::move(some)) {}
  Result<std::unique_ptr<File>> create(const Path& p) override { return of(p).create(p); }
  Result<std::unique_ptr<File>> open(const Path& p) override { return of(p).open(p); }
  Result<void> make_directories(const Path& p) override { return of(p).make_directories(p); }
  Result<void> rename(const Path& a, const Path& b) override { return of(a).rename(a, b); }
  Result<void> remove(const Path& p) override { return of(p).remove(p); }
  Result<std::vector<std::string>> list(const Path& p) override { return of(p).list(p); }
  Result<void> sync_directory(const Path& p) override {
    return (p == some_.folder ? of(p) : faulty_).sync_directory(p);
  }
  bool exists(const Path& p) override { return sound_.exists(p); }
  bool is_link(const Path& p) override { return sound_.is_link(p); }
  Result<int64_t> free_bytes(const Path& p) override { return sound_.free_bytes(p); }

 private:
  FileSystem& of(const Path& path) {
    const bool one_of_them = path.filename().string().starts_with(some_.prefix);
    return one_of_them || faulty_.calls(Op::kAny) >= some_.at_call ? faulty_ : sound_;
  }
  FileSystem& sound_;
  FaultyFileSystem& faulty_;
  const Some some_;
};

}  // namespace lockstep::checkpoint::crash
