// `lockstep export CHECKPOINT DIR`: a checkpoint as a folder that transformers loads.
#pragma once

namespace lockstep::cli {

// argv[0] is the command's own name. Returns the exit status.
int export_command(int argc, char** argv);

}  // namespace lockstep::cli
