#include "core/sharding/rank_flags.h"

namespace lockstep::core {

SaveTrouble trouble_of(const SaveOutage& outage, double most_s, Code last) {
  if (last == Code::kAborted) return SaveTrouble::kTakenOver;
  const double seconds = outage.failed_s - outage.since_s;
  if (seconds < most_s || (outage.failures == 1 && most_s > 0)) return SaveTrouble::kFailed;
  return last == Code::kNoSpace ? SaveTrouble::kDiskFull : SaveTrouble::kTooLong;
}

Code end_code(SaveTrouble any) {
  if (any == SaveTrouble::kTakenOver) return Code::kAborted;
  return any == SaveTrouble::kDiskFull ? Code::kNoSpace : Code::kIo;
}

}  // namespace lockstep::core
