// Ranks of a file that are killed at every call of their saves again, on pieces of several chunks.
#include "tests/crash/rank_processes.h"

namespace lockstep::checkpoint {
namespace {

TEST(SaveCrashSlow, RanksOfAFileKilledAtEachCallAndWord) {
  processes::kill_ranks_of_a_file(large_model(), {{Fault::kKill, Fault::kShortWriteKill}});
}

}  // namespace
}  // namespace lockstep::checkpoint
