// `lockstep serve RESULTS`: the runs of a folder as curves in a browser.
#pragma once

namespace lockstep::cli {

// argv[0] is "serve". Returns the exit status: 0 when it was asked to end, 64 for wrong input.
int serve_command(int argc, char** argv);

}  // namespace lockstep::cli
