// data/prepare/jinja_script.py, which is in the program.
#pragma once

namespace lockstep::data {

extern const char* const kJinjaScript;

}  // namespace lockstep::data
