// What happens at a call to the file system.
#pragma once

#include <ostream>

#include "tests/support/faulty_file_system.h"

namespace lockstep::checkpoint::crash {

using lockstep::test_support::Fault;

enum class After { kGoOn, kStop, kPowerLoss, kPowerLossBySeed };
struct Scenario {
  const char* name;
  Fault fault;
  After after;  // of the call that meets the fault: nothing, or no call is made any more, and then
                // what was not synced is lost, all or by chance
};
inline constexpr Scenario kScenarios[] = {
    {"EIO", Fault::kIoError, After::kGoOn},
    {"ENOSPC", Fault::kNoSpace, After::kGoOn},
    {"ShortWrite", Fault::kShortWrite, After::kGoOn},
    {"Kill", Fault::kIoError, After::kStop},
    {"KillInAWrite", Fault::kShortWrite, After::kStop},
    {"PowerLoss", Fault::kIoError, After::kPowerLoss},
    {"PowerLossInAWrite", Fault::kShortWrite, After::kPowerLoss},
    {"PowerLossWithSomeWrittenBack", Fault::kShortWrite, After::kPowerLossBySeed},
};

inline void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

}  // namespace lockstep::checkpoint::crash
