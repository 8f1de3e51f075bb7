// What `lockstep prepare` says of the records that it read.
#pragma once

#include <string>

#include "data/prepare/prepare.h"

namespace lockstep::cli {

// What the first records are taken for, before anything is written.
void print_understood(const data::Understanding& first, const data::RecordFormat& records,
                      const data::Tokenizer& tokenizer);

// What `all`, which are "the first " or "all ", gave.
void print_records(const char* which, const data::Understanding& all);

// One line. What was understood is missing where the folder was up to date.
std::string report_as_json(const data::PrepareReport& report, const data::PrepareOptions& options,
                           const data::Tokenizer& tokenizer);

}  // namespace lockstep::cli
