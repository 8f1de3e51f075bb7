// A folder of a process in the system's temporary one, gone when the process is.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace lockstep::launcher {

// Owns the folder, which only this user can enter, and a lock on it: the kernel lets go of that
// when the process is killed, and the next one that makes a folder on this machine removes the
// one that was left.
class ScratchFolder {
 public:
  // Errors: kConfig (TMPDIR is missing, or cannot be written), kNoSpace, each naming the folder.
  static Result<ScratchFolder> create();
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();  // removes it with all that is in it

  const std::filesystem::path& path() const { return path_; }

 private:
  ScratchFolder(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::filesystem::path path_;  // empty: moved from
  int lock_;                    // -1: there are no locks here
};

}  // namespace lockstep::launcher
