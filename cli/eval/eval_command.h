// `lockstep eval --hf DIR …`: loss and perplexity as JSON. The work is done in
// lockstep-worker.
#pragma once

namespace lockstep::cli {

// argv[0] is the command's own name. Returns the exit status.
int eval_command(int argc, char** argv);

}  // namespace lockstep::cli
