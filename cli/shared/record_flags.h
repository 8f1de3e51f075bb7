// The flags that say which fields of records are the text.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "data/prepare/record.h"

namespace lockstep::cli {

struct RecordFlags {
  data::RecordFormat records;
  std::string chat_date;
};

// --text-field, --prompt-field, --response-field, --chat-template, --chat-date and --ignore-key.
void add_record_flags(CLI::App& app, RecordFlags& flags);

// --chat-date YYYY-MM-DD
void add_chat_date_flag(CLI::App& app, std::string& date);

// The format that they name; none: the input is text. The chat template "auto" stays, and
// find_template finds which one it is. Errors: kConfig: two at once, half a pair, a needed key that
// is to be ignored, "auto" where `tokenizer`, as --tokenizer names it, has no folder.
Result<std::optional<data::RecordFormat>> record_format(const RecordFlags& flags,
                                                        const std::string& tokenizer);

// Replaces the chat template "auto" by that of the folder of `path`, and logs which one it is. One
// that Jinja renders is added to `files`, which the prepared folder keeps for `generate` and
// `export`, with the files that name its tokens. Errors: find_chat_template's.
Result<void> find_template(std::optional<data::RecordFormat>& records, const std::string& chat_date,
                           const std::string& path, const data::Tokenizer& tokenizer,
                           std::vector<std::pair<std::string, std::string>>& files);

}  // namespace lockstep::cli
