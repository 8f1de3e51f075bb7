// What a shell has to know to complete the words of `lockstep`, as a script for it.
#pragma once

#include <string>
#include <vector>

#include "cli/shared/command_words.h"

namespace lockstep::cli {

// A file that bash sources.
std::string bash_completion(const std::vector<CommandShape>& commands);
// The function _lockstep, as a file of zsh's fpath.
std::string zsh_completion(const std::vector<CommandShape>& commands);
// A file of fish's completions.
std::string fish_completion(const std::vector<CommandShape>& commands);

// The keys of the config, as flags.
std::vector<CommandFlag> key_flags();
// A command that has parts: the words behind it, and those behind each of them. Every command of
// the tree comes once, with its own words ("checkpoint list").
struct NamedShape {
  std::string words;
  const CommandShape* shape;
};
std::vector<NamedShape> all_shapes(const std::vector<CommandShape>& commands);

}  // namespace lockstep::cli
