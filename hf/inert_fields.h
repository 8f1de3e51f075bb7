// The fields of config.json that change no arithmetic: one table. A field stands in it only if
// transformers computes the same logits and gradients whatever its value is, or whatever it is
// among the values that are listed.
#pragma once

#include <string>

#include "base/json.h"

namespace lockstep::hf {

enum class Inert {
  kNo,     // it may change something, or nothing is known of it
  kPlain,  // transformers' own: every folder has some of these, so nothing is said of them
  kNoted,  // another tool's, or one that sounds as if it changed something
};

Inert inert_field(const std::string& name, const nlohmann::json& value);

}  // namespace lockstep::hf
