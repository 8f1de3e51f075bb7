// The manual pages of `lockstep`, made from what its commands say of themselves.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/shared/command_words.h"

namespace lockstep::cli {

struct ManPage {
  std::string file;  // "lockstep-train.1"
  std::string roff;  // with the macros of man(7)
};

// lockstep.1, and one page a command; the keys of a config are in that of `train`.
// `version`: of Lockstep, for the foot of the pages.
std::vector<ManPage> man_pages(const std::vector<CommandShape>& commands,
                               const std::string& version);

// `text` as roff shows it letter by letter: no sign of it is a request, and none is outside ASCII.
std::string roff_text(std::string_view text);

}  // namespace lockstep::cli
