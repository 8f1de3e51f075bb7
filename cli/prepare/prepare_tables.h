// Parquet and Arrow files among what `lockstep prepare` is given become JSON lines first, by
// tools/to_jsonl in a Python with pyarrow.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "data/prepare/prepare.h"

namespace lockstep::cli {

// A .parquet or .arrow file, or a folder that has one in it. What cannot be read has none.
bool has_tables(const std::filesystem::path& input);

// Puts a file of JSON lines in `scratch` in the place of each of options.inputs that has tables,
// and sets options.origin, so that errors name a table and its row. Of a folder with tables other
// files are left out. Columns that say nothing of what is learnt are not read.
// Errors: kConfig: options.records is empty, no Python, no pyarrow, a file that cannot be read,
// bytes that are no text; kIo.
Result<void> tables_become_lines(data::PrepareOptions& options,
                                 const std::filesystem::path& scratch);

}  // namespace lockstep::cli
