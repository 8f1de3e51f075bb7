// The batch script that `lockstep submit` writes: which words of a command line are sbatch's, and
// the text. Pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep::launcher::slurm {

struct SubmitWords {
  std::vector<std::pair<std::string, std::string>> sbatch;  // name, value; "" for a flag
  std::vector<std::string> launch;                          // all others, in their order
  int64_t min_nodes = 1;
  bool dry_run = false;

  std::string sbatch_value(std::string_view name, const std::string& otherwise) const;
};
// Takes out what is sbatch's (sbatch_help) and --dry-run, --min-nodes N.
// Errors: kConfig, for an option without its value, or with one that has several lines.
Result<SubmitWords> split_words(const std::vector<std::string>& arguments);
std::string sbatch_help();  // the options that are passed on, in lines

struct BatchScript {
  std::string job_name;
  std::filesystem::path program;  // lockstep
  std::string functions;          // sbatch_files/common.sh
  SubmitWords words;
};
// A whole script. What the user did not say is: one task a node, no requeue, no kill, the output
// appended to logs/<job name>/%x-%j.out, USR1 two minutes before the time limit.
std::string batch_script_text(const BatchScript& script);
// logs/<job name>/<job name>.sbatch
std::filesystem::path batch_script_path(const std::string& job_name);

}  // namespace lockstep::launcher::slurm
