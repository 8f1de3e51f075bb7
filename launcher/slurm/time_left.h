// How long an allocation lasts: until its time limit, or until a maintenance reservation of one of
// its nodes begins. Pure: answers of scontrol go in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "launcher/slurm/job.h"

namespace lockstep::launcher::slurm {

struct TimeLeft {
  int64_t seconds = 0;
  std::string at;    // as Slurm says it, "2026-11-26T08:10:00"
  std::string what;  // begins then: "the time limit", "the maintenance reservation NAME"
};

// `reservations`: the lines of `scontrol -o show reservation`; one that the job itself runs in, or
// that has begun already, does not end it. None: nothing ends it. Errors: kCorrupt when scontrol
// told of no time limit, not even that there is none.
Result<std::optional<TimeLeft>> time_left(const Job& job, std::string_view reservations,
                                          int64_t now_unix_s);

}  // namespace lockstep::launcher::slurm
