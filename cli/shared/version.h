// What this build is. CMake writes the values when it configures, into a source of their own: a new
// commit compiles that one file.
#pragma once

#include <string>

namespace lockstep::cli {

extern const char* const kVersion;  // "0.1.0"
extern const char* const kBuild;    // "commit 3a4e6bae8197, LibTorch 2.15.0"

// Whether its lockstep-worker computes on GPUs.
bool built_for_gpus();

// One line: the program's name, the version, the commit (with "+" where files differed from it;
// "unknown" outside of a repository), and the LibTorch that lockstep-worker is linked with, "with
// CUDA" where it computes on GPUs.
std::string version_line(const char* program);

}  // namespace lockstep::cli
