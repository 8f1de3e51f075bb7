// `lockstep stage FOLDER`: one archive of what a node loads to train, for sbatch_files/common.sh,
// which puts it onto the nodes' own disks.
#pragma once

namespace lockstep::cli {

// argv[0] is "stage". Prints the archive's SHA-256 and its path. Returns 64 where there is no
// worker or something is wrong with the folder, 70 where the disk is full.
int stage_command(int argc, char** argv);

}  // namespace lockstep::cli
