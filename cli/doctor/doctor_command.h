// `lockstep doctor [CONFIG.toml] [--json]`: is this node fit for the job? A verdict a line.
#pragma once

namespace lockstep::cli {

// argv[0] is the command's own name ("doctor"), the rest its arguments. Exit status: 0; 1 when a
// verdict is bad; 64 for a wrong config.
int doctor_command(int argc, char** argv);

}  // namespace lockstep::cli
