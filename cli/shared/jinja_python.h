// The Python that renders chat templates (data/prepare/jinja_template.h).
#pragma once

#include "data/prepare/jinja_template.h"

namespace lockstep::cli {

// Runs python_program() (cli/shared/python_tools.h). An answer that takes longer than a rendering
// may on a slow machine is an error.
data::PythonStarter jinja_python();

}  // namespace lockstep::cli
