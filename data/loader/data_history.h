// What a run has drawn from its sources, exactly, though sequence length, batch or mixture changed
// on the way. Pure arithmetic over stretches of steps in which none of them did.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/loader/open_dataset.h"

namespace lockstep::data {

// Steps first_step + 1, … up to the next stretch's first_step, or to the run's present step.
struct DataStretch {
  int64_t first_step = 0;
  int64_t samples_per_step = 0;  // V * B
  int64_t seq_len = 0;           // T
  std::string sources;           // DataSummary::hash
  // By source: samples of its order that come before the first one of this stretch, whose indices
  // then count from first_step (data.on_change continue). Empty: they count from step 0.
  std::vector<int64_t> before = {};
};

// By source: what the order has passed, drawn by steps that were left out too.
struct Drawn {
  std::string source;  // its hash
  int64_t samples = 0, tokens = 0;
};
// In the order in which sources came in. Requires: ascending first_step; end_step at or after each.
std::vector<Drawn> drawn(const std::vector<DataStretch>& stretches, int64_t end_step);

// By source: the number, among its samples, of the first one that `stretch` draws.
struct SourceStart {
  std::string source;
  int64_t sample = 0;
};
std::vector<SourceStart> starts_of(const DataStretch& stretch);

// Where the samples of a stretch begin.
SampleOrigin origin_of(const DataStretch& stretch);

// The run goes on with `now` from now.first_step on: appended unless nothing has changed. To
// continue is to begin each source behind the furthest of its samples that was drawn; at another
// sequence length, whose samples and order are others, behind as many tokens. Returns lines for
// people, none when nothing has changed: what was drawn so far, where the new order starts, and how
// many samples and tokens are passed over or drawn again for that.
// `sources`: of `now`, for their names and sizes; empty (an array of batches) is never continued.
std::vector<std::string> go_on_with(std::vector<DataStretch>& stretches, DataStretch now,
                                    const std::vector<DataSource>& sources, OnDataChange on_change);

}  // namespace lockstep::data
