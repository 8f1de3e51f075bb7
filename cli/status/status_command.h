// `lockstep status RUN_FOLDER [--watch] [--json]`: who runs, what each rank is doing, what looks
// wrong.
//
//   generation 1  world_size 2  state running  agent 4711  transport memory
//   rank  pid   step  phase  save     committed  in_memory  age_s  tokens_s  suspect
//   0     4715  42    step   writing  40         -          0.1    2923      -
//   1     4716  42    step   writing  40         -          7.3    2923      stopped (SIGSTOP …)
//   step 41 of 500  loss 3.65334  5,847 tokens/s of all ranks, 0.350 s a step  eta 0:02:40  …
//   last checkpoint: step 40, 0:00:08 ago  restarts 1, the last failure: rank 1 killed by SIGKILL …
//     its last error: …            (where the launcher has one of that rank's log)
//   suspect: rank 1: stopped (SIGSTOP or a debugger)
// One line a rank, words apart by blanks, so that `awk '$1 == 1 {print $2}'` gives rank 1's pid.
// A rank whose process is gone has the phase `gone`; a number nobody knows is `-`, in JSON -1. Of a
// run that no agent watches (srun, torchrun) there are no ranks, only what rank 0 logged.
// Exit status: 0, or 64 when no run began in the folder.
#pragma once

namespace lockstep::cli {

// argv[0] is the command's own name ("status"), the rest its arguments.
int status_command(int argc, char** argv);

}  // namespace lockstep::cli
