#include "launcher/slurm/batch_script.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <utility>

#include "base/number.h"
#include "base/text.h"
#include "launcher/slurm/node_cpus.h"

namespace lockstep::launcher::slurm {
namespace {

constexpr std::string_view kWithValue[] = {
    "account",   "begin",     "comment",       "constraint", "cpus-per-task", "dependency",
    "exclude",   "gpus",      "gpus-per-node", "gres",       "hint",          "job-name",
    "mail-type", "mail-user", "mem",           "nodelist",   "nodes",         "output",
    "partition", "qos",       "signal",        "time",       "open-mode",     "reservation",
    "array",     "uenv"};
// Of srun: the batch script itself stays outside, where Slurm's commands are.
constexpr std::string_view kOfContainer[] = {"environment", "container-image", "container-mounts"};
constexpr std::pair<char, std::string_view> kShort[] = {
    {'A', "account"}, {'N', "nodes"}, {'p', "partition"}, {'t', "time"}};
constexpr std::string_view kFlags[] = {"requeue", "no-requeue", "no-kill", "exclusive"};

constexpr std::string_view kPacks = "packs";  // in the folder of submission, which all nodes see

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_option(const std::vector<SubmitWords::Option>& options, std::string_view name) {
  return std::any_of(options.begin(), options.end(),
                     [&](const auto& option) { return option.first == name; });
}

// "-N4" -> "--nodes=4", "-N" -> "--nodes".
std::string long_form(const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return word;
  for (const auto& [letter, name] : kShort)
    if (word[1] == letter) return text("--", name, word.size() > 2 ? "=" : "", word.substr(2));
  return word;
}

Result<void> spread_gpus(SubmitWords& words) {
  const auto all = std::find_if(words.sbatch.begin(), words.sbatch.end(),
                                [](const auto& option) { return option.first == "gpus"; });
  if (all == words.sbatch.end()) return {};
  const std::string nodes = words.sbatch_value("nodes", "1"), count = all->second;
  const int64_t over = parse_number(nodes).value_or(0), gpus = gpus_of_count(count);
  const bool even = over > 0 && gpus % over == 0 && count.find(',') == std::string::npos;
  if (!even || has_option(words.sbatch, "gpus-per-node"))
    return Error{Code::kConfig,
                 text("--gpus ", count, " of ", nodes,
                      " nodes cannot be divided evenly; give --gpus-per-node alone instead")};
  const size_t type = count.rfind(':') + 1;  // "a100:8"
  *all = {"gpus-per-node", text(count.substr(0, type), gpus / over)};
  return {};
}

// What sbatch_files/common.sh calls it: "container-image" -> "LOCKSTEP_CONTAINER_IMAGE".
std::string variable_of(const std::string& option) {
  std::string name = "LOCKSTEP_";
  for (const char c : option) name += c == '-' ? '_' : static_cast<char>(c - 'a' + 'A');
  return name;
}

// As a word of an #SBATCH line, whose rules are Slurm's own (src/sbatch/opt.c), not a shell's:
// blanks part words, an unquoted # ends the line, a backslash escapes also between quotes.
std::string header_word(const std::string& value) {
  if (value.find_first_of(" \t\"'#\\") == std::string::npos) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

// What a task of an array does.
std::string row_of_array(const std::vector<std::string>& rows) {
  std::string out = "rows=(";
  for (const std::string& row : rows) out += text("\n  ", shell_quoted(row));
  return out + R"(
)
row="${rows[SLURM_ARRAY_TASK_ID]}"
rm -f "$row/exit_status"
launch "$row/config.toml" >>"$row/console.log" 2>&1
status=$?
echo "$status" >"$row/exit_status"
exit "$status"
)";
}

}  // namespace

std::string SubmitWords::sbatch_value(std::string_view name, const std::string& otherwise) const {
  for (const auto& [option, value] : sbatch)
    if (option == name) return value;
  return otherwise;
}

bool SubmitWords::has(std::string_view name) const {
  return has_option(sbatch, name) || has_option(container, name);
}

int64_t SubmitWords::gpus_per_node() const {
  return std::max(gpus_of_count(sbatch_value("gpus-per-node", "")),
                  gpus_of_gres(sbatch_value("gres", "")));
}

int64_t SubmitWords::most_nodes() const {
  const std::string nodes = sbatch_value("nodes", "1");
  return std::atoll(nodes.c_str() + nodes.rfind('-') + 1);
}

std::string sbatch_help() {
  constexpr size_t kColumns = 90;
  std::string out, line = " ";
  for (const auto names :
       {std::span<const std::string_view>(kWithValue), std::span<const std::string_view>(kFlags),
        std::span<const std::string_view>(kOfContainer)})
    for (const std::string_view name : names) {
      if (line.size() + name.size() > kColumns) out += std::exchange(line, " ") + "\n";
      line += text(" --", name);
    }
  return out + line + "\n";
}

Result<SubmitWords> split_words(const std::vector<std::string>& arguments) {
  SubmitWords words;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string word = long_form(arguments[i]);
    const size_t equals = word.find('=');
    const std::string name = word.starts_with("--") ? word.substr(2, equals - 2) : "";
    const bool of_container = is_one_of(kOfContainer, name);
    const bool takes_value = is_one_of(kWithValue, name) || of_container || name == "min-nodes";
    if (name == "dry-run") {
      words.dry_run = true;
    } else if (name == "stage") {
      words.stage = true;
    } else if (is_one_of(kFlags, name)) {
      words.sbatch.emplace_back(name, equals == std::string::npos ? "" : word.substr(equals + 1));
    } else if (!takes_value) {
      words.launch.push_back(word);
    } else {
      if (equals == std::string::npos && i + 1 == arguments.size())
        return Error{Code::kConfig, text("--", name, " needs a value")};
      const std::string value =
          equals != std::string::npos ? word.substr(equals + 1) : arguments[++i];
      if (name != "min-nodes") {
        (of_container ? words.container : words.sbatch).emplace_back(name, value);
      } else if (words.min_nodes = parse_number(value).value_or(0); words.min_nodes < 1) {
        return Error{Code::kConfig, text("--min-nodes ", value, ": it must be a number of nodes")};
      }
    }
  }
  for (const auto& [name, value] : words.sbatch)
    if (value.find_first_of("\n\r") != std::string::npos)
      return Error{
          Code::kConfig,
          text("--", name, ": this value contains a line break, which a batch script cannot hold")};
  if (words.stage && !words.container.empty())
    return Error{
        Code::kConfig,
        text("--stage is not used with a container image: the programs are in the image (--",
             words.container.front().first, ")")};
  if (words.most_nodes() < words.min_nodes)
    return Error{Code::kConfig,
                 text("--min-nodes ", words.min_nodes, " is more than the job's nodes (--nodes ",
                      words.sbatch_value("nodes", "1"), ")")};
  LOCKSTEP_RETURN_IF_ERROR(spread_gpus(words));
  return words;
}

std::string batch_script_text(const BatchScript& script) {
  const SubmitWords& words = script.words;
  std::vector<std::pair<std::string, std::string>> options = words.sbatch;
  const auto unless_said = [&](const std::string& name, const std::string& value) {
    if (!words.has(name)) options.emplace_back(name, value);
  };
  unless_said("job-name", script.job_name);
  unless_said("nodes", "1");
  unless_said("output", text("logs/", script.job_name, "/%x-%j.out"));
  unless_said("open-mode", "append");
  unless_said("signal", "USR1@120");
  unless_said("no-kill", "");
  if (!words.has("requeue")) unless_said("no-requeue", "");
  options.emplace_back("ntasks-per-node", "1");

  std::string out =
      "#!/bin/bash\n# Written by `lockstep submit`; sbatch this file to do it again.\n";
  for (const auto& [name, value] : options) {
    const bool has_value = !value.empty() || is_one_of(kWithValue, name);
    out += text("#SBATCH --", name, has_value ? "=" : "", header_word(value), "\n");
  }
  out += text("\n[[ -n ${LOCKSTEP:-} ]] || LOCKSTEP=", shell_quoted(script.program.string()),
              "\nMIN_NODES=", words.min_nodes, "\n");
  if (words.stage) out += text("[[ -n ${LOCKSTEP_STAGE:-} ]] || LOCKSTEP_STAGE=", kPacks, "\n");
  for (const auto& [name, value] : words.container)
    out += text(variable_of(name), "=", shell_quoted(value), "\n");
  out += text("\n", script.functions, "\n");
  if (!script.rows.empty()) return out + row_of_array(script.rows);
  out += "launch";
  for (const std::string& word : words.launch) out += " " + shell_quoted(word);
  return out + "\n";
}

std::filesystem::path batch_script_path(const std::string& job_name) {
  return std::filesystem::path("logs") / job_name / (job_name + ".sbatch");
}

}  // namespace lockstep::launcher::slurm
