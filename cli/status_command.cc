#include "cli/status_command.h"

#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "launcher/incident.h"
#include "launcher/process.h"
#include "launcher/run_files.h"

namespace lockstep::cli {
namespace {

using launcher::Membership;

constexpr const char* kHelp =
    R"(lockstep status RUN_FOLDER [--json]

Shows the generation, the world size and, one line a rank: pid, step, phase, what its checkpoint
engine does, the newest committed step it knows, the newest step that all ranks hold in memory (-1:
none), and the age of its last sign of life in seconds.

Examples:
  lockstep status results/training/demo
  lockstep status results/training/demo --json
  kill -9 $(lockstep status results/training/demo | awk '$1 == 1 {print $2}')   # a drill
)";

struct Row {
  Membership::Member member;
  bool alive = false;
  double age_s = -1;

  const char* phase() const { return alive ? phase_name(member.progress.phase) : "gone"; }
};

Row row_of(Membership::Member member, bool running) {
  Row row;
  row.alive = running && launcher::is_alive(member.pid);
  // Only a page that is there: opening a missing one would make it.
  if (row.alive && posix_file_system().exists(member.progress_page))
    if (auto page = ProgressPage::open(member.progress_page); page)
      member.progress = (*page)->read();
  if (member.progress.unix_ns > 0)
    row.age_s = static_cast<double>(system_clock().unix_ns() - member.progress.unix_ns) * 1e-9;
  row.member = std::move(member);
  return row;
}

void print_table(const Membership& membership, const std::string& state,
                 const std::vector<Row>& rows) {
  std::cout << "generation " << membership.generation << "  world_size " << membership.world_size
            << "  state " << state << "  agent " << membership.agent_pid;
  if (membership.exit_status >= 0) std::cout << "  exit_status " << membership.exit_status;
  std::cout << '\n' << std::left;
  const auto line = [](const auto&... cells) {
    constexpr int kWidth = 10;
    ((std::cout << std::setw(kWidth) << cells << ' '), ...) << '\n';
  };
  line("rank", "pid", "step", "phase", "save", "committed", "in_memory", "age_s");
  for (const Row& row : rows) {
    const Progress& progress = row.member.progress;
    line(row.member.rank, row.member.pid, progress.step, row.phase(),
         save_phase_name(progress.save_phase), progress.committed_step, progress.snapshot_step,
         fixed(row.age_s, 1));
  }
}

void print_json(const Membership& membership, const std::string& state,
                const std::vector<Row>& rows) {
  nlohmann::ordered_json json{{"generation", membership.generation},
                              {"world_size", membership.world_size},
                              {"state", state},
                              {"agent_pid", membership.agent_pid},
                              {"exit_status", membership.exit_status},
                              {"workers", nlohmann::ordered_json::array()}};
  for (const Row& row : rows) {
    const Progress& progress = row.member.progress;
    json["workers"].push_back({{"rank", row.member.rank},
                               {"pid", row.member.pid},
                               {"alive", row.alive},
                               {"step", progress.step},
                               {"phase", row.phase()},
                               {"save_phase", save_phase_name(progress.save_phase)},
                               {"committed_step", progress.committed_step},
                               {"snapshot_step", progress.snapshot_step},
                               {"age_s", row.age_s}});
  }
  std::cout << json.dump(1) << '\n';
}

}  // namespace

int status_command(int argc, char** argv) {
  std::string folder;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::cout << kHelp;
      return launcher::kExitDone;
    }
    if (argument == "--json") {
      json = true;
    } else if (folder.empty() && !argument.starts_with("-")) {
      folder = argument;
    } else {
      log_error("lockstep status: unexpected \"", argument, "\"");
      return launcher::kExitConfig;
    }
  }
  const auto path = std::filesystem::path(folder) / "workers.json";
  const auto membership = launcher::read_membership(posix_file_system(), path);
  if (folder.empty() || !membership) {
    log_error(folder.empty() ? "which RUN_FOLDER? See `lockstep status --help`"
                             : membership.error().message);
    return launcher::kExitConfig;
  }
  const Membership& found = membership.value();
  const bool running = found.state == "running" && launcher::is_alive(found.agent_pid);
  const std::string state = found.state == "running" && !running ? "agent_gone" : found.state;
  std::vector<Row> rows;
  for (const auto& member : found.workers) rows.push_back(row_of(member, running));
  if (json) {
    print_json(found, state, rows);
  } else {
    print_table(found, state, rows);
  }
  return launcher::kExitDone;
}

}  // namespace lockstep::cli
