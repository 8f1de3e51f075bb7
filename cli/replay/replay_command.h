// `lockstep replay RUN --from A --to B`: computes steps of a run again, on this machine, and says
// whether their bits are those that the run logged. Exit status: 0 they are · 1 they are not ·
// others as `lockstep train`'s.
#pragma once

namespace lockstep::cli {

// argv[0] is the command's own name, the rest its arguments.
int replay_command(int argc, char** argv);

}  // namespace lockstep::cli
