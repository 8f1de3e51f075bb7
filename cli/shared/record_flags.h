// The flags that say which fields of records are the text.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "data/prepare/record.h"

namespace lockstep::cli {

// --text-field, --prompt-field, --response-field, --chat-template and --ignore-key, into `records`.
void add_record_flags(CLI::App& app, data::RecordFormat& records);

// The format that they name; none: the input is text. The chat template "auto" becomes that of the
// folder of `tokenizer`. Errors: kConfig: two at once, half a pair, a
// needed key that is to be ignored; resolved_chat_template's.
Result<std::optional<data::RecordFormat>> record_format(data::RecordFormat records,
                                                        const std::string& tokenizer);

}  // namespace lockstep::cli
