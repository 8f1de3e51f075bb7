#include "launcher/control/incident.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <tuple>

#include "base/check.h"
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
                               : "");
  const char* meaning = exit_meaning(exit.exit_code);
  if (*meaning == '\0') return text("exit code ", exit.exit_code);
  return text("exit code ", exit.exit_code, " (", meaning, ")");
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

std::string phases_text(const Incident& incident) {
  return text("detect ", fixed(incident.detect_ms, 0), " ms, stop ", fixed(incident.stop_ms, 0),
              " ms, agree ", fixed(incident.agree_ms, 0), " ms, respawn ",
              fixed(incident.respawn_ms, 0), " ms, restore ", fixed(incident.restore_ms, 0),
              " ms, first step ", fixed(incident.first_step_ms, 0),
              " ms: ", fixed(incident.total_ms(), 0), " ms");
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
                  ", first new step ", incident.first_step, "\n");
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
