// `lockstep prepare INPUT... --out DIR`: text to token shards (data/prepare/prepare.h), with a
// progress line.
#pragma once

namespace lockstep::cli {

// argv[0] is the command's name. Returns the exit status: 0, or exit_status() of the error (64: the
// arguments or the input are wrong).
int prepare_command(int argc, char** argv);

}  // namespace lockstep::cli
