// What `lockstep sweep` was asked: which keys take which values, and all rows that follow. Pure.
//
//   --over training.local_batch_size=1,2 --over parallelism.strategy=ddp,full_shard
//   -> 4 rows: local_batch_size=1,strategy=ddp · …=1,…=full_shard · …=2,…=ddp · …=2,…=full_shard
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::cli {

inline constexpr size_t kMaxSweepRows = 1000;
inline constexpr int64_t kMaxSweepSteps = 1'000'000'000;

// A key of the config, or its short name, and the values that it takes.
struct SweepAxis {
  std::string key;
  std::vector<std::string> values;
};

struct SweepWords {
  std::vector<SweepAxis> axes;
  int64_t steps = 20;
  std::filesystem::path out;  // empty: not said
  bool json = false, report = false, submit = false;
  std::vector<std::string> launch;  // all others, in their order; CONFIG.toml is one of them
};
// Errors: kConfig: a flag without its value, one that is none, no --over, a key twice, the folder
// of the rows' runs given by another flag than --out.
Result<SweepWords> split_sweep_words(const std::vector<std::string>& arguments);

// One combination: values[i] is of axes[i].
struct SweepRow {
  std::string name;  // of its folder: letters, digits and ._=,+-
  std::vector<std::string> values;
};
// The last key changes fastest. Errors: kConfig: more than kMaxSweepRows; two rows of one name.
Result<std::vector<SweepRow>> rows_of(const std::vector<SweepAxis>& axes);

// What stands above an axis: the key without its section, where that tells it from the others.
std::vector<std::string> short_names(const std::vector<SweepAxis>& axes);

// The words for parse_config that give the config of `row`, whose run folder is `out`/<its name>.
// Without a word of the user's a row takes `steps` steps, and neither saves nor validates.
std::vector<std::string> config_words(const SweepWords& words, const SweepRow& row,
                                      const std::filesystem::path& out);

}  // namespace lockstep::cli
