// `lockstep sweep CONFIG --over KEY=VALUE,VALUE …`: runs each combination of values for a few
// steps, one after the other, each as `lockstep launch` does it, and makes one table of them.
//
// Exit status: 0 every row is settled (sweep_row.h) · 1 a row failed, and is tried again by the
// next call · 64 wrong input · 75 stopped: the same command goes on.
#pragma once

namespace lockstep::cli {

// argv[0] is the command's own name, the rest its arguments.
int sweep_command(int argc, char** argv);

}  // namespace lockstep::cli
