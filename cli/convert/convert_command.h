// `lockstep convert-config`: another tool's config as ours.
#pragma once

namespace lockstep::cli {

int convert_command(int argc, char** argv);

}  // namespace lockstep::cli
