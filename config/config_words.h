// A Config as the words of a command line.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace lockstep {
inline namespace base {

// The words that give this config without a file: those of the keys that do not have their
// defaults, `training.steps` only where no number of epochs says how many there are.
std::vector<std::string> config_words(const Config& config);

}  // namespace base
}  // namespace lockstep
