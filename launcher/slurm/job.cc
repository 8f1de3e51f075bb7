#include "launcher/slurm/job.h"

#include <algorithm>

#include "base/number.h"
#include "base/text.h"
#include "launcher/host/hostlist.h"

namespace lockstep::launcher::slurm {
namespace {

std::optional<bool> flag(const Environment& environment, const char* name) {
  const std::string value = variable(environment, name);
  if (value == "1") return true;
  if (value == "0") return false;
  return std::nullopt;
}

// Of the folder of a job, which may have blanks: up to where the next " Name=" begins.
std::string folder_of(std::string_view answer) {
  constexpr std::string_view kFolder = " WorkDir=", kCapitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const size_t at = answer.find(kFolder);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = answer.substr(at + kFolder.size());
  size_t end = std::min(rest.find('\n'), rest.size());
  for (size_t blank = rest.find(' '); blank < end; blank = rest.find(' ', blank + 1)) {
    const size_t stop = rest.find_first_of(" =/", blank + 1);
    if (stop == std::string_view::npos || rest[stop] != '=') continue;
    if (kCapitals.find(rest[blank + 1]) != std::string_view::npos) end = blank;
  }
  return std::string(rest.substr(0, end));
}

// The words of an #SBATCH line as sbatch takes them: quotes group, a backslash escapes (between
// quotes too), an unquoted # begins a comment.
std::vector<std::string> header_words(std::string_view line) {
  std::vector<std::string> words(1);
  char quote = '\0';
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\\' && i + 1 < line.size()) {
      words.back() += line[++i];
    } else if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else if (quote == '\0' && c == '#') {
      break;
    } else if (quote == '\0' && (c == ' ' || c == '\t')) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

}  // namespace

std::optional<Job> job_from(const Environment& environment) {
  Job job;
  job.id = variable(environment, "SLURM_JOB_ID");
  if (job.id.empty()) return std::nullopt;
  // The number alone would mean every task of the array.
  const std::string array = variable(environment, "SLURM_ARRAY_JOB_ID");
  const std::string task = variable(environment, "SLURM_ARRAY_TASK_ID");
  if (!array.empty() && !task.empty()) job.id = array + "_" + task;
  job.node = variable(environment, "SLURMD_NODENAME");
  job.in_step = parse_number(variable(environment, "SLURM_STEP_ID")).has_value();
  job.first_task = parse_number(variable(environment, "SLURM_PROCID")).value_or(0) == 0;
  job.restarts = parse_number(variable(environment, "SLURM_RESTART_COUNT")).value_or(0);
  job.requeue = flag(environment, kRequeueVariable);
  job.no_kill = flag(environment, kNoKillVariable);
  return job;
}

std::string field_of(std::string_view answer, std::string_view name) {
  const std::string wanted = " " + std::string(name) + "=";
  const std::string line = " " + std::string(answer);
  const size_t at = line.find(wanted);
  if (at == std::string::npos) return "";
  const size_t begin = at + wanted.size();
  const std::string value = line.substr(begin, line.find_first_of(" \n", begin) - begin);
  return value == "(null)" ? "" : value;
}

std::optional<int64_t> seconds_of(std::string_view duration) {
  int64_t seconds = 0;
  if (const size_t dash = duration.find('-'); dash != std::string_view::npos) {
    const auto days = parse_number(duration.substr(0, dash));
    if (!days) return std::nullopt;
    seconds = *days;
    duration.remove_prefix(dash + 1);
  }
  const auto parts = split(duration, ':');
  if (parts.size() != 3) return std::nullopt;
  constexpr int64_t kPerUnit[] = {24, 60, 60};
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto value = parse_number(parts[i]);
    if (!value || *value < 0) return std::nullopt;
    seconds = seconds * kPerUnit[i] + *value;
  }
  return seconds;
}

Result<void> add_answer(Job& job, std::string_view answer) {
  if (!answer.starts_with("JobId="))
    return Error{Code::kCorrupt,
                 text("cannot parse the answer of scontrol: \"", answer.substr(0, 80), "\"")};
  if (answer.find('\n') != answer.rfind('\n'))
    return Error{Code::kCorrupt, text("scontrol lists several jobs named ", job.id)};
  // The job's own word; the environment was written when it was submitted.
  if (const std::string requeue = field_of(answer, "Requeue"); !requeue.empty())
    job.requeue = requeue == "1";
  if (const std::string batch = field_of(answer, "BatchFlag"); !batch.empty())
    job.batch = batch != "0";
  job.restarts = parse_number(field_of(answer, "Restarts")).value_or(job.restarts);
  job.state = field_of(answer, "JobState");
  job.reason = field_of(answer, "Reason");
  job.batch_host = field_of(answer, "BatchHost");
  job.end_time = field_of(answer, "EndTime");
  job.reservation = field_of(answer, "Reservation");
  job.folder = folder_of(answer);
  // The script and its arguments. One of --wrap or a pipe has no name.
  constexpr std::string_view kCommand = " Command=";
  const size_t begin = answer.find(kCommand), end = answer.find(" WorkDir=");
  const bool named = end != std::string_view::npos && begin + kCommand.size() < end;
  job.script = named ? answer.substr(begin + kCommand.size(), end - begin - kCommand.size()) : "";
  if (!job.script.starts_with('/')) job.script.clear();
  const std::string limit_text = field_of(answer, "TimeLimit");
  job.unlimited = limit_text == "UNLIMITED";
  const auto limit = seconds_of(limit_text);
  const auto run = seconds_of(field_of(answer, "RunTime"));
  job.seconds_left = limit && run ? std::optional(*limit - *run) : std::nullopt;
  const std::string nodes = field_of(answer, "NodeList");
  if (nodes.empty()) return {};
  LOCKSTEP_TRY(job.nodes, expand_hostlist(nodes));
  return {};
}

std::optional<bool> no_kill_of_script(std::string_view script) {
  constexpr std::string_view kHeader = "#SBATCH";
  std::optional<bool> no_kill;
  for (const std::string& line : split(script, '\n')) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin != std::string::npos && line[begin] != '#') break;
    if (!line.starts_with(kHeader)) continue;
    for (const std::string& word : header_words(line.substr(kHeader.size())))
      if (word == "--no-kill" || word == "-k" || word.starts_with("--no-kill="))
        no_kill = word != "--no-kill=off" && word != "--no-kill=no";
  }
  return no_kill;
}

Policy policy_of(const Job& job) {
  // An allocation that somebody typed in (salloc, srun) ends with its shell; no requeue.
  if (job.batch == false) return Policy::kNone;
  if (job.requeue.value_or(false))
    return job.no_kill.value_or(false) ? Policy::kRequeueNoKill : Policy::kRequeue;
  return job.no_kill.value_or(false) ? Policy::kNoRequeueNoKill : Policy::kNoRequeue;
}

bool is_cancelled(const Job& job) {
  if (job.state == "CANCELLED") return true;
  return job.state == "COMPLETING" && job.reason != "TimeLimit" && job.reason != "Preempted";
}

}  // namespace lockstep::launcher::slurm
