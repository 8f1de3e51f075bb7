// The flags that say which fields of JSON lines are the text.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "base/result.h"
#include "data/prepare/record.h"

namespace lockstep::cli {

// --text-field, --prompt-field, --response-field and --chat-template, into `records`.
void add_record_flags(CLI::App& app, data::RecordFormat& records);

// The format that they name; none: the input is text. Errors: kConfig: two at once, half a pair.
Result<std::optional<data::RecordFormat>> record_format(const data::RecordFormat& records);

}  // namespace lockstep::cli
