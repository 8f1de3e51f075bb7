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
  using Option = std::pair<std::string, std::string>;  // name, value; "" for a flag
  std::vector<Option> sbatch;
  std::vector<Option> container;    // of each step: srun's
  std::vector<std::string> launch;  // all others, in their order
  int64_t min_nodes = 1;
  bool dry_run = false;
  bool stage = false;  // programs and libraries onto the nodes' own disks

  std::string sbatch_value(std::string_view name, const std::string& otherwise) const;
  bool has(std::string_view name) const;  // of sbatch's or of the container's
  int64_t gpus_per_node() const;          // that are asked for
  int64_t most_nodes() const;             // 4 of --nodes=4 and of --nodes=2-4
};
// Takes out what is sbatch's and srun's (sbatch_help) and --dry-run, --stage, --min-nodes N. --gpus
// becomes --gpus-per-node: steps inherit it, and could not have as many when a node was lost.
// Errors: kConfig, for an option without its value, or with one that has several lines; for GPUs
// that the nodes cannot share evenly; for --stage with a container, whose image has the programs.
Result<SubmitWords> split_words(const std::vector<std::string>& arguments);
std::string sbatch_help();  // the options that are passed on, in lines

struct BatchScript {
  std::string job_name;
  std::filesystem::path program;  // lockstep, as the nodes find it
  std::string functions;          // sbatch_files/common.sh
  SubmitWords words;
  // Of a sweep: run folders with a config.toml. The job is an array: task i trains rows[i], and
  // leaves its output in console.log and its exit status in exit_status there. Else words.launch is
  // what is trained.
  std::vector<std::string> rows = {};
};
// A whole script. What the user did not say is: one task a node, no requeue, no kill, the output
// appended to logs/<job name>/%x-%j.out, USR1 two minutes before the time limit.
std::string batch_script_text(const BatchScript& script);
// logs/<job name>/<job name>.sbatch
std::filesystem::path batch_script_path(const std::string& job_name);

}  // namespace lockstep::launcher::slurm
