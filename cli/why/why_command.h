// `lockstep why RUN_FOLDER [--json]`: why a run ended or was disturbed, what that cost, and what a
// person should do.
// Exit status: 0 it is told, also that nothing went wrong; 64 no run began in the folder, or wrong
// words; 70 the folder cannot be read.
#pragma once

namespace lockstep::cli {

// argv[0] is the command's own name ("why"), the rest its arguments.
int why_command(int argc, char** argv);

}  // namespace lockstep::cli
