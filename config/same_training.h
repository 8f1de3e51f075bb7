// Whether a run can go on from a checkpoint under a config: what is the same run, and what is
// another one. `identity` and `slots` are those of the checkpoint; `where` names it for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace lockstep {
inline namespace base {

// Slots, optimizer and the kind of its moments must be the same. Errors: kConfig, which names the
// key to give.
Result<void> can_go_on(const std::vector<std::string>& identity, int64_t slots,
                       const Config& config, const std::string& where);
// Of a checkpoint whose tensors do not fit: which keys of the config make another model of it:
// "the config describes another model than the checkpoint: model.dim: checkpoint 64, config 128;
// undo …"; "" where it is not the config that says so.
std::string other_model(const std::vector<std::string>& identity, const Config& config);

}  // namespace base
}  // namespace lockstep
