// `lockstep checkpoint list|inspect|verify DIR`: looks at checkpoints, changes nothing.
#pragma once

namespace lockstep::cli {

// argv[0] is the command's name. Returns the exit status: 0 · 1 `verify` found damage, or `list`
// found no usable checkpoint · else exit_status() of the error (64: the arguments are wrong).
int checkpoint_command(int argc, char** argv);

}  // namespace lockstep::cli
