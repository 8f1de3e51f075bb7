// `lockstep prepare --inspect DIR`: one sample of a prepared folder, decoded, with its loss mask.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::cli {

struct InspectOptions {
  std::string folder, split = "train";
  int64_t sample = 0;  // in stream order: tokens [sample * seq_len, sample * seq_len + seq_len]
  int64_t seq_len = 256;
};

// The lines of a run of tokens: after "loss |" where it counts in the loss, else after "     |".
std::vector<std::string> run_lines(const std::string& words, bool in_loss);

// Prints runs of tokens that count in the loss after "loss |", the others after "     |"; of packed
// documents each under a line of its own.
// Errors: read_manifest's, tokenizer_of_dataset's; kConfig, no such sample.
Result<void> inspect_sample(const InspectOptions& options, std::ostream& out);

}  // namespace lockstep::cli
