// Parquet and Arrow files among what `lockstep prepare` is given become JSON lines first, by
// tools/to_jsonl in a Python with pyarrow.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "base/result.h"
#include "data/prepare/record.h"

namespace lockstep::cli {

// A .parquet or .arrow file, or a folder that has one in it. What cannot be read has none.
bool has_tables(const std::filesystem::path& input);

// `inputs`, with a file of JSON lines in `scratch` in place of each that has tables. Of a folder
// with tables other files are left out.
// Errors: kConfig: `records` is empty, no Python, no pyarrow, a file or column that cannot be read;
// kIo.
Result<std::vector<std::filesystem::path>> with_tables_as_lines(
    std::vector<std::filesystem::path> inputs, const std::optional<data::RecordFormat>& records,
    const std::filesystem::path& scratch);

}  // namespace lockstep::cli
