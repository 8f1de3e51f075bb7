#include "cli/status/status_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "cli/shared/command_words.h"
#include "cli/shared/printable_stream.h"
#include "cli/status/status_report.h"
#include "config/config.h"
#include "launcher/control/incident.h"
#include "launcher/slurm/ends.h"

namespace lockstep::cli {
namespace {

constexpr const char* kHelp =
    R"(lockstep status RUN_FOLDER [--watch] [--json]

Shows the generation, the world size and a line for each rank: pid, step, phase, what its checkpoint
engine does, the newest committed step it knows, the newest step that all ranks hold in memory, the
seconds since its last sign of life, its tokens a second, and what looks wrong with it: gone,
stopped, silent, behind the others, or a save that failed. - means unknown (-1 in JSON). Then it
shows the nodes with their ranks if there are several, and the step, loss and speed of the run, the
last checkpoint, the restarts after a failure and the last failure. Notes say what this host cannot
see. Of a run that failed or stopped, `lockstep why` says more. For a run that srun or torchrun
started, without an agent, it shows what rank 0 logged.

  --watch   shows it again every second, in place on a terminal, until the run has ended
  --json    as one JSON object; with --watch one a line

lockstep status --end-of LAUNCH CONFIG.toml [--section.key value]…

For batch scripts: prints the exit status with which the launch of that name (LOCKSTEP_LAUNCH)
ended, or `none`.

Examples:
  lockstep status results/training/demo
  lockstep status results/training/demo --watch
  lockstep status results/training/demo --json | jq '.suspects'
  kill -9 $(lockstep status results/training/demo | awk '$1 == 1 {print $2}')   # a drill
)";
constexpr int64_t kPause_ns = 1'000'000'000;

struct Options {
  std::string folder;
  bool json = false, watch = false;
};

LiveText::Size terminal_size() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_row, size.ws_col};
}

int show(const Options& options) {
  RunObserver observer(posix_file_system(), system_clock(), options.folder);
  std::ostream terminal(PrintableStream::terminal_of(std::cout));
  LiveText screen(terminal);
  while (true) {
    const auto status = observer.look();
    if (!status) {
      log_error(status.error().message);
      return launcher::kExitConfig;
    }
    if (options.json) {
      std::cout << status_json(status.value(), options.watch) << std::endl;
    } else if (options.watch) {
      screen.show(status_text(status.value()), terminal_size());
    } else {
      std::cout << status_text(status.value());
    }
    if (!options.watch || status.value().over() || !std::cout || !terminal)
      return launcher::kExitDone;
    system_clock().sleep_ns(kPause_ns);
  }
}

// `words`: the launch's own.
int show_end(const std::string& launch, const std::vector<std::string>& words) {
  auto parsed = parse_config("", words);
  if (parsed.ok() && parsed.value().positional.size() == 1)
    parsed = parse_config(parsed.value().positional[0], words);
  if (!parsed.ok()) {
    log_error(parsed.error().message);
    return launcher::kExitConfig;
  }
  const auto said =
      launcher::slurm::read_end(posix_file_system(), parsed.value().config.dump_folder(), launch);
  std::cout << (said ? std::to_string(*said) : "none") << "\n";
  return launcher::kExitDone;
}

}  // namespace

int status_command(int argc, char** argv) {
  if (const auto end = show_help(kHelp, false, argc, argv)) return *end;
  if (argc > 2 && argv[1] == std::string_view("--end-of"))
    return show_end(argv[2], {argv + 3, argv + argc});
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json") {
      options.json = true;
    } else if (argument == "--watch") {
      options.watch = true;
    } else if (options.folder.empty() && !argument.starts_with("-")) {
      options.folder = argument;
    } else {
      log_error("lockstep status: unexpected argument \"", argument, "\"");
      return launcher::kExitConfig;
    }
  }
  if (options.folder.empty()) {
    log_error("no RUN_FOLDER is given; see `lockstep status --help`");
    return launcher::kExitConfig;
  }
  return show(options);
}

}  // namespace lockstep::cli
