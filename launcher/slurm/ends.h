// How a launch under Slurm ended: <run folder>/slurm_end.json. srun ends with the greatest status
// of its tasks, which may be that of a node that the others went on without. So the launcher that
// speaks for the job writes down what it says, and the batch script asks for it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::launcher::slurm {

// The batch script's name of the launch, other for each.
inline constexpr const char* kLaunchVariable = "LOCKSTEP_LAUNCH";

// The exit status that `launch` said; none when it said nothing, or the file is of another one.
std::optional<int> read_end(FileSystem& file_system, const std::filesystem::path& run_folder,
                            const std::string& launch);
// A done run stays done, whoever wakes up later and says otherwise. Errors: kIo, kNoSpace.
Result<void> write_end(FileSystem& file_system, const std::filesystem::path& run_folder,
                       const std::string& launch, int exit_status);

}  // namespace lockstep::launcher::slurm
