// Who may commit in a folder of checkpoints: the generation that started last. Its name stands in
// the folder's file GENERATION; a process that was given up, wakes and goes on reads another's name
// there and commits nothing. The file is no lock: between a look at it and the commit a new one may
// start, which then finds one more whole checkpoint of the old line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::checkpoint {

inline constexpr const char* kFenceName = "GENERATION";

struct Fence {
  std::filesystem::path folder;
  int64_t generation = 0;
  std::string nonce;

  // From now on the folder is this generation's. Errors: kIo, kNoSpace.
  Result<void> take(FileSystem& file_system) const;
  // Errors: kAborted naming the generation that took over; kIo, also where the file that take()
  // wrote is gone: then another disk, or an empty one, is there now.
  Result<void> check(FileSystem& file_system) const;
};

}  // namespace lockstep::checkpoint
