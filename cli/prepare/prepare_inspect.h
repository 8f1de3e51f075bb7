// `lockstep prepare --inspect DIR`: one sample of a prepared folder, decoded, with its loss mask.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "base/result.h"

namespace lockstep::cli {

struct InspectOptions {
  std::string folder, split = "train";
  int64_t sample = 0;  // in stream order: tokens [sample * seq_len, sample * seq_len + seq_len]
  int64_t seq_len = 256;
};

// Prints runs of tokens that count in the loss after "loss |", the others after "     |"; of packed
// documents each under a line of its own.
// Errors: read_manifest's, tokenizer_of_dataset's; kConfig, no such sample.
Result<void> inspect_sample(const InspectOptions& options, std::ostream& out);

}  // namespace lockstep::cli
