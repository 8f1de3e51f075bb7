// The memory of this host, and folders in it that belong to one user alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace lockstep {
inline namespace base {

// The bytes that a line of a file of the kernel says, "NAME:   1234 kB"; -1 where none does.
int64_t kernel_bytes(const std::filesystem::path& path, const std::string& name);
// What new memory may take without pushing others out: MemAvailable, or what is left under the
// limits of this process's cgroups (a Slurm job's --mem) where that is less; -1 where nobody says.
// `root`: of the file system that has proc and sys/fs/cgroup.
int64_t available_memory_bytes(const std::filesystem::path& root = "/");

// How many processes the kernel has ended on this host for lack of memory since it started; 0 where
// it does not say. `root`: as above.
int64_t processes_ended_for_memory(const std::filesystem::path& root = "/");

// Makes `path` (its parent exists), readable by this user alone (mode 0700). One that is there
// already must be just that: a folder, no link, ours, closed to others. Errors: kConfig, kIo.
Result<void> make_owned_directory(const std::filesystem::path& path);

// A text that two processes share only if `path` is one and the same directory of one running
// host for both. Errors: kIo.
Result<std::string> directory_identity(const std::filesystem::path& path);

// 64 bits that nobody can guess, from the kernel. Errors: kIo.
Result<uint64_t> random_number();

}  // namespace base
}  // namespace lockstep
