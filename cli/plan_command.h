// `lockstep plan`: what a run takes of memory, and what fits, without running it.
#pragma once

namespace lockstep::cli {

// The exit status.
int plan_command(int argc, char** argv);

}  // namespace lockstep::cli
