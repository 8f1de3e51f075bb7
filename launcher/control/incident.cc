#include "launcher/control/incident.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <tuple>

#include "base/check.h"
#include "base/number.h"
#include "base/text.h"

namespace lockstep::launcher {
namespace {

const char* exit_meaning(int exit_code) {
  switch (exit_code) {
    case kExitDone: return "done";
    case kExitConfig: return "wrong config or input";
    case kExitBug: return "bug";
    case kExitNoMemory: return "out of memory: see `lockstep plan`";
    case kExitDiskFull: return "disk full, or a file-size limit";
    case kExitResume: return "saved; start it again to resume";
    case kExitPeerLost: return "lost a peer";
    case kExitWrongBits: return "an audit found wrong bits";
    case kExitChanged: return "ended for a planned change";
    case kExitNoProgress: return "do not restart";
    case 127: return "program or library not found";
    default: return "";
  }
}

bool bug_signal(int signal) {
  switch (signal) {
    case SIGSEGV:
    case SIGABRT:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGSYS: return true;
    default: return false;
  }
}

std::string where_text(const Progress& progress) {
  std::string out = text("step ", progress.step, ", ", phase_name(progress.phase));
  if (progress.save_phase != SavePhase::kIdle && progress.save_phase != SavePhase::kCommitted)
    out += text(", checkpoint ", save_phase_name(progress.save_phase));
  return out;
}

void append_consequences(const Incident& incident, std::string& out) {
  if (incident.consequences.empty()) return;
  out += "    then   ";
  const char* separator = "";
  for (const WorkerExit& exit : incident.consequences) {
    out += text(separator, "rank ", exit.rank, " ", cause_text(exit));
    separator = "; ";
  }
  out += '\n';
}

}  // namespace

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? text("SIG", name) : text("signal ", signal);
}

std::string cause_text(const WorkerExit& exit) {
  if (!exit.node_lost.empty()) return exit.node_lost;
  if (exit.hung_s > 0)
    return text(exit.stopped ? "stopped (SIGSTOP), " : "", "no progress for ",
                fixed(exit.hung_s, 1), " s");
  if (exit.signal != 0)
    return text("killed by ", signal_text(exit.signal),
                exit.no_memory ? " (the kernel killed processes of its node because memory ran "
                                 "out: see `lockstep plan`)"
                : exit.signal == SIGKILL && exit.agent_did == AgentDid::kKilled
                    ? " (its agent stopped it)"
                    : "");
  const char* meaning = exit_meaning(exit.exit_code);
  if (*meaning == '\0') return text("exit code ", exit.exit_code);
  return text("exit code ", exit.exit_code, " (", meaning, ")");
}

// The inverse of cause_text.
WorkerExit parse_cause(std::string_view words) {
  constexpr std::string_view kStopped = "stopped (SIGSTOP), ", kSilent = "no progress for ",
                             kKilled = "killed by ", kExit = "exit code ";
  WorkerExit exit;
  std::string_view rest = words;
  if (rest.starts_with(kStopped)) {
    exit.stopped = true;
    rest.remove_prefix(kStopped.size());
  }
  if (rest.starts_with(kSilent)) {
    const std::string_view number = rest.substr(kSilent.size());
    exit.hung_s = parse_hex_float(std::string(number.substr(0, number.find(' ')))).value_or(0);
    if (exit.hung_s <= 0) exit.hung_s = 0.1;  // it was rounded
    return exit;
  }
  if (rest.starts_with(kKilled)) {
    rest.remove_prefix(kKilled.size());
    const std::string_view name = rest.substr(0, rest.find(" ("));
    for (int signal = 1; signal <= SIGRTMAX && exit.signal == 0; ++signal)
      if (signal_text(signal) == name) exit.signal = signal;
    exit.no_memory = rest.find("memory ran out") != rest.npos;
    if (rest.ends_with(" (its agent stopped it)")) exit.agent_did = AgentDid::kKilled;
    return exit;
  }
  if (rest.starts_with(kExit)) {
    const std::string_view number = rest.substr(kExit.size());
    const auto code = parse_number(number.substr(0, number.find(' ')));
    exit.exit_code = static_cast<int>(code.value_or(kExitBug));
    return exit;
  }
  exit.node_lost = words;
  return exit;
}

int failure_status(const WorkerExit& exit) {
  if (exit.hung_s > 0 || !exit.node_lost.empty()) return kExitResume;
  if (exit.no_memory) return kExitNoMemory;
  if (exit.signal != 0) return bug_signal(exit.signal) ? kExitBug : kExitResume;
  switch (exit.exit_code) {
    case kExitConfig:
    case kExitBug:
    case kExitNoMemory:
    case kExitDiskFull:
    case kExitResume:
    case kExitPeerLost:
    case kExitWrongBits:
    case kExitNoProgress: return exit.exit_code;
    default: return kExitBug;
  }
}

std::string last_error(std::string_view log) {
  constexpr std::string_view kMark = " - ERROR - ";
  const size_t mark = log.rfind(kMark);
  if (mark == log.npos) return "";
  const std::string_view said = log.substr(mark + kMark.size());
  return std::string(said.substr(0, said.find('\n')));
}

// A step that a rank computes follows one that all have completed.
void Pace::note(const Progress& progress, int64_t now_ns) {
  if (progress.phase < Phase::kStep) return;
  done = std::max(done, computing(progress.phase) ? progress.step - 1 : progress.step);
  if (!computing(progress.phase) || progress.step <= front) return;
  if (first < 0) {
    first = progress.step;
    first_ns = now_ns;
  }
  front = progress.step;
  front_ns = now_ns;
}

double Pace::step_s() const {
  if (front <= first) return -1;
  return static_cast<double>(front_ns - first_ns) * 1e-9 / static_cast<double>(front - first);
}

int64_t Incident::redone_steps() const {
  if (!recovered() || done_step < 0) return -1;
  return std::max<int64_t>(0, done_step - first_step + 1);
}

double Incident::redone_s() const {
  const int64_t steps = redone_steps();
  if (steps < 0 || (steps > 0 && step_s < 0)) return -1;
  return steps == 0 ? 0 : step_s * static_cast<double>(steps);
}

std::string phases_text(const Incident& incident) {
  return text("detect ", fixed(incident.detect_ms, 0), " ms, stop ", fixed(incident.stop_ms, 0),
              " ms, agree ", fixed(incident.agree_ms, 0), " ms, respawn ",
              fixed(incident.respawn_ms, 0), " ms, restore ", fixed(incident.restore_ms, 0),
              " ms, first step ", fixed(incident.first_step_ms, 0),
              " ms: ", fixed(incident.total_ms(), 0), " ms");
}

std::string redone_text(int64_t steps, double seconds) {
  if (steps < 0) return "";
  if (steps == 0) return "no step is computed again";
  return text(counted(steps, "step"),
              seconds < 0 ? "" : text(" (about ", fixed(seconds, seconds < 10 ? 1 : 0), " s)"),
              steps == 1 ? " is" : " are", " computed again");
}

std::string incident_table(const std::vector<Incident>& incidents) {
  std::string out;
  for (const Incident& incident : incidents) {
    const WorkerExit& first = incident.primary;
    out += text("generation ", incident.generation, ", world size ", incident.world_size, "\n",
                "    first  rank ", first.rank, " ", cause_text(first), ", at ",
                where_text(first.progress), "\n");
    for (const std::string& line : first.log_lines) out += text("           | ", line, "\n");
    append_consequences(incident, out);
    if (incident.recovered())
      out += text("    cost   ", phases_text(incident), "; world size ", incident.next_world_size,
                  ", continued from step ", incident.first_step,
                  incident.redone_steps() < 0 ? "" : ", ",
                  redone_text(incident.redone_steps(), incident.redone_s()), "\n");
    else if (incident.next_world_size > 0)
      out += text("    cost   restarted with world size ", incident.next_world_size,
                  ", no step completed\n");
    else
      out += "    cost   not restarted\n";
  }
  return out;
}

}  // namespace lockstep::launcher

namespace lockstep::launcher::control {
namespace {

bool killed_by_agent(const WorkerExit& exit) {
  return exit.signal == SIGKILL && exit.agent_did == AgentDid::kKilled;
}

bool killed_by_others(const WorkerExit& exit) {
  return exit.signal == SIGKILL && exit.agent_did != AgentDid::kKilled;
}

// The smaller one is nearer to the cause.
auto order_of(const SeenExit& seen) {
  const WorkerExit& exit = seen.exit;
  // 0: unexplained; 1: a lost peer; 2: the end of a worker that we killed or that had not failed.
  const int explained = !exit.failed() || killed_by_agent(exit) ? 2 : peer_lost(exit) ? 1 : 0;
  const bool told = exit.node_lost.empty() ? exit.agent_did != AgentDid::kNothing : seen.after_kill;
  // Of several in one look a signal comes before an exit code: a worker that could still choose its
  // exit code had heard of the other's death.
  return std::tuple(explained, told, !killed_by_others(exit), seen.after_kill,
                    exit.chose_its_code());
}

}  // namespace

bool peer_lost(const WorkerExit& exit) {
  return exit.chose_its_code() && exit.exit_code == kExitPeerLost;
}

size_t primary_index(const std::vector<SeenExit>& exits) {
  const auto first = std::min_element(
      exits.begin(), exits.end(),
      [](const SeenExit& a, const SeenExit& b) { return order_of(a) < order_of(b); });
  LOCKSTEP_CHECK(first != exits.end(), "no worker has ended");
  return static_cast<size_t>(first - exits.begin());
}

int64_t lost_workers(const std::vector<SeenExit>& exits) {
  return std::count_if(exits.begin(), exits.end(), [](const SeenExit& seen) {
    const WorkerExit& exit = seen.exit;
    if (!exit.failed() || peer_lost(exit) || killed_by_agent(exit)) return false;
    return !seen.after_kill || killed_by_others(exit);
  });
}

}  // namespace lockstep::launcher::control
