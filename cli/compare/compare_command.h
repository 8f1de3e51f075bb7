// `lockstep compare A B …`: are these the same losses? The first run is the reference.
//
// Prints a table (or JSON), and draws the loss curves; of one run alone as well. Reads run folders
// and console logs of other trainers (run_log.h). Exit status: 0 comparable · 1 a bit differs, with
// --require-identical ·
// 64 what was given is not a run, or no step is in both · 74 the plot cannot be written.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <vector>

#include "base/file_system.h"
#include "cli/compare/curves.h"

namespace CLI {
class App;
}

namespace lockstep::cli {

struct CompareOptions {
  std::vector<std::filesystem::path> runs;  // one or more
  std::filesystem::path plot;               // empty: none
  CurveOptions curves;                      // of the plot
  bool json = false;
  bool require_identical = false;
};

// Adds its flags and its examples to `app`. Parsing fills `options`, which must outlive it.
void add_compare_options(CLI::App& app, CompareOptions& options);

// Runs it. Returns the exit status.
int run_compare(const CompareOptions& options, FileSystem& file_system, std::ostream& out,
                std::ostream& err);

}  // namespace lockstep::cli
