// How a command ends that looks at what a person named.
#pragma once

#include "base/result.h"

namespace lockstep::cli {

// 64 for whatever is wrong with what was named, 70 for a full disk or a bug.
inline int status_of_input(Code code) {
  const bool ours = code == Code::kNoSpace || code == Code::kBug;
  return exit_status(ours ? code : Code::kConfig);
}

}  // namespace lockstep::cli
