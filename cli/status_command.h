// `lockstep status RUN_FOLDER [--json]`: who runs, and what each rank is doing.
//
//   generation 1  world_size 2  state running  agent 4711
//   rank  pid     step  phase   save     committed  age_s
//   0     4715    42    step    writing  40         0.1
//   1     4716    42    step    writing  40         0.1
// One line a rank, words apart by blanks, so that `awk '$1 == 1 {print $2}'` gives rank 1's pid.
// A rank whose process is gone has the phase `gone`; a number nobody knows is -1.
// Exit status: 0, or 64 when the folder holds no run that an agent watched.
#pragma once

namespace lockstep::cli {

// argv[0] is the command's own name ("status"), the rest its arguments.
int status_command(int argc, char** argv);

}  // namespace lockstep::cli
