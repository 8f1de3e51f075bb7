// `lockstep track RUN --to wandb|mlflow`: a run's curves in a tracker. The work is done by
// tools/track, in Python, where the trackers' clients are.
#pragma once

namespace lockstep::cli {

// argv[0] is the command's own name. Returns the exit status, if it could not become tools/track.
int track_command(int argc, char** argv);

}  // namespace lockstep::cli
