// `lockstep generate RUN`: text sampled from a run's newest checkpoint. Tokenizes here, samples in
// lockstep-worker.
#pragma once

namespace lockstep::cli {

// argv[0] is the command's own name. Returns the exit status.
int generate_command(int argc, char** argv);

}  // namespace lockstep::cli
