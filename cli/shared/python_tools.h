// Scripts of tools/ that commands run, for what has a client or a reader in Python alone.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::cli {

// tools/NAME beside this program: of the checkout that it was built in, of a wheel or of a bundle.
// Errors: kConfig: it is in none of these places.
Result<std::filesystem::path> tool_script(const std::string& name);

// The interpreter's file: LOCKSTEP_PYTHON, which a wheel's script sets, else python3 of PATH.
// Errors: kConfig: none starts, or it is older than 3.9.
Result<std::filesystem::path> python_program();

// Becomes tools/NAME with `arguments`; LOCKSTEP tells it which program this is. Returns only
// on failure: kConfig, kIo.
Error become_tool(const std::string& name, const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
