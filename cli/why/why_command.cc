#include "cli/why/why_command.h"

#include <iostream>
#include <string>

#include "base/log.h"
#include "cli/shared/command_words.h"
#include "cli/why/account_facts.h"
#include "cli/why/account_report.h"
#include "launcher/control/incident.h"

namespace lockstep::cli {
namespace {

constexpr const char* kHelp =
    R"(lockstep why RUN_FOLDER [--json]

Says why a run failed, stopped or was disturbed: the first cause, when, where (node, rank, GPU),
what it cost (steps that are computed again, seconds, GPU-hours), what the run did about it, and
what you should do. Then it lists what followed, in order. Of a run that nothing happened to, it
says so in one line. It reads events.jsonl, metrics.jsonl, workers.json and the logs of the run
folder, and changes nothing.

  --json    the same as fields of one JSON object

Exit status: 0 it was told; 64 no run has started in the folder.

Examples:
  lockstep why results/training/demo
  lockstep why results/training/demo --json | jq -r .what
)";

}  // namespace

int why_command(int argc, char** argv) {
  if (const auto end = show_help(kHelp, false, argc, argv)) return *end;
  std::string folder;
  bool as_json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json") {
      as_json = true;
    } else if (folder.empty() && !argument.starts_with("-")) {
      folder = argument;
    } else {
      log_error("lockstep why: unexpected argument \"", argument, "\"");
      return launcher::kExitConfig;
    }
  }
  if (folder.empty()) {
    log_error("no RUN_FOLDER is given; see `lockstep why --help`");
    return launcher::kExitConfig;
  }
  const auto account = read_account(posix_file_system(), system_clock(), folder);
  if (!account) {
    log_error(account.error().message);
    return account.error().code == Code::kNotFound ? launcher::kExitConfig : launcher::kExitBug;
  }
  if (as_json)
    std::cout << dump_json(account_json(account.value()), 1) << "\n";
  else
    std::cout << account_text(account.value());
  return launcher::kExitDone;
}

}  // namespace lockstep::cli
