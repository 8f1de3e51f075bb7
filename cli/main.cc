// lockstep: everything a person types. Links no Torch, so it answers at once.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "base/task_thread.h"
#include "base/text.h"
#include "cli/checkpoint/checkpoint_command.h"
#include "cli/compare/compare_command.h"
#include "cli/completion/completion_script.h"
#include "cli/convert/convert_command.h"
#include "cli/doctor/doctor_command.h"
#include "cli/eval/eval_command.h"
#include "cli/export/export_command.h"
#include "cli/generate/generate_command.h"
#include "cli/launch/launch_command.h"
#include "cli/manual/man_pages.h"
#include "cli/plan/plan_command.h"
#include "cli/prepare/prepare_command.h"
#include "cli/replay/replay_command.h"
#include "cli/serve/serve_command.h"
#include "cli/shared/command_words.h"
#include "cli/shared/exit_status.h"
#include "cli/shared/printable_stream.h"
#include "cli/shared/version.h"
#include "cli/stage/stage_command.h"
#include "cli/status/status_command.h"
#include "cli/submit/submit_command.h"
#include "cli/sweep/sweep_command.h"
#include "cli/track/track_command.h"
#include "cli/why/why_command.h"

namespace {

using lockstep::cli::CommandShape;

constexpr const char* kAboutCompletion =
    "Writes shell completion for lockstep: commands, flags, config keys with their values, and "
    "files.\n\nExamples:\n  source <(lockstep completion bash)      # in ~/.bashrc\n  lockstep "
    "completion zsh > ~/.zfunc/_lockstep      # ~/.zfunc is in fpath, before compinit\n  lockstep "
    "completion fish > ~/.config/fish/completions/lockstep.fish\n";

int compare_command(int argc, char** argv) {
  lockstep::cli::CompareOptions options;
  CLI::App app{"Compare the losses of runs bit by bit, or show those of one run",
               "lockstep compare"};
  lockstep::cli::add_compare_options(app, options);
  if (const auto end = lockstep::cli::parse_words(app, argc, argv)) return *end;
  return lockstep::cli::run_compare(options, lockstep::posix_file_system(), std::cout, std::cerr);
}

int completion_command(int argc, char** argv);

struct Command {
  const char* name;
  int (*run)(int argc, char** argv);
  const char* what;
};

constexpr Command kCommands[] = {
    {"prepare", lockstep::cli::prepare_command, "turn text files into token shards"},
    {"train", lockstep::cli::train_command,
     "train on this machine, or as one rank of srun or torchrun"},
    {"launch", lockstep::cli::launch_command,
     "train, and restart from the newest checkpoint when a worker dies"},
    {"submit", lockstep::cli::submit_command, "write the batch script of a run, and sbatch it"},
    {"stage", lockstep::cli::stage_command, "pack programs and libraries for the nodes' own disks"},
    {"sweep", lockstep::cli::sweep_command,
     "run a few steps of each combination of config values into one table"},
    {"plan", lockstep::cli::plan_command,
     "predict the memory of a run and what fits, before it starts"},
    {"doctor", lockstep::cli::doctor_command, "check whether this node is fit for a job"},
    {"status", lockstep::cli::status_command,
     "show the ranks of a run, their steps and what looks wrong"},
    {"why", lockstep::cli::why_command,
     "say why a run failed or stopped, what it cost, and what to do"},
    {"serve", lockstep::cli::serve_command, "show curves and state of runs in a browser"},
    {"checkpoint", lockstep::cli::checkpoint_command,
     "list, verify, compare, reshard, export, import, prune checkpoints"},
    {"compare", compare_command, "compare the losses of runs bit by bit, and plot them"},
    {"replay", lockstep::cli::replay_command,
     "compute steps of a run again and compare the bits with its log"},
    {"eval", lockstep::cli::eval_command, "compute loss and perplexity of a Hugging Face folder"},
    {"export", lockstep::cli::export_command, "a checkpoint as a folder that transformers loads"},
    {"generate", lockstep::cli::generate_command, "sample text from a run or a model"},
    {"convert-config", lockstep::cli::convert_command, "another tool's config as one of lockstep"},
    {"track", lockstep::cli::track_command, "send a run's curves to Weights & Biases or MLflow"},
    {"completion", completion_command, "print shell completion for bash, zsh or fish"},
};

// With `help`, behind which stands a command.
std::vector<CommandShape> shapes_of_all() {
  std::vector<CommandShape> shapes;
  CommandShape help{.name = "help", .what = "show what a command does, and its flags"};
  help.flags.push_back({.name = "--man",
                        .help = "write manual pages into this folder",
                        .value = lockstep::cli::ValueKind::kFile});
  for (const Command& c : kCommands) {
    shapes.push_back(lockstep::cli::shape_of(c.name, c.what, c.run));
    help.parts.push_back({.name = c.name, .what = c.what});
  }
  shapes.push_back(std::move(help));
  return shapes;
}

int completion_command(int argc, char** argv) {
  const std::map<std::string, std::string (*)(const std::vector<CommandShape>&)> writers{
      {"bash", lockstep::cli::bash_completion},
      {"fish", lockstep::cli::fish_completion},
      {"zsh", lockstep::cli::zsh_completion}};
  std::string shell;
  CLI::App app{kAboutCompletion, "lockstep completion"};
  app.add_option("SHELL", shell, "bash, zsh or fish")->required()->check(CLI::IsMember(writers));
  if (const auto end = lockstep::cli::parse_words(app, argc, argv)) return *end;
  std::cout << writers.at(shell)(shapes_of_all());
  return 0;
}

void print_help() {
  std::cout
      << "lockstep: fault-tolerant training of large language models.\n"
         "The loss curve is the same bit for bit for any world size and any number of kills.\n\n"
         "lockstep help COMMAND, or COMMAND --help, says more about each; lockstep help --man DIR\n"
         "writes manual pages:\n";
  for (const Command& c : kCommands)
    std::cout << "  " << c.name << std::string(16 - std::strlen(c.name), ' ') << c.what << "\n";
  std::cout << "\nExamples:\n"
               "  lockstep prepare my_texts/ --out tokens\n"
               "  lockstep train examples/demo.toml --data.path tokens\n"
               "  lockstep launch examples/demo.toml --data.path tokens --nproc-per-node 2\n"
               "  lockstep compare results/training/a results/training/b --plot losses.svg\n";
}

const Command* find_command(std::string_view word) {
  const auto found = std::find_if(std::begin(kCommands), std::end(kCommands),
                                  [&](const Command& c) { return word == c.name; });
  return found == std::end(kCommands) ? nullptr : found;
}

int unknown_command(const std::string& word) {
  std::vector<std::string> names;
  for (const Command& c : kCommands) names.push_back(c.name);
  const std::string meant = lockstep::nearest(word, names);
  std::cerr << "lockstep: no command \"" << word << "\"";
  if (word == "demo")
    std::cerr << "; an installed wheel has it, and `make demo` does the same in a clone.";
  else if (!meant.empty())
    std::cerr << "; did you mean " << meant << "?";
  std::cerr << " `lockstep --help` lists them\n";
  return lockstep::exit_status(lockstep::Code::kConfig);
}

// help --man DIR.
int write_man_pages(int count, char** words) {
  if (count != 1) {
    std::cerr << "lockstep help --man needs one folder, which gets lockstep.1 and a page for each "
                 "command\n";
    return lockstep::exit_status(lockstep::Code::kConfig);
  }
  lockstep::FileSystem& file_system = lockstep::posix_file_system();
  const std::filesystem::path folder = words[0];
  auto done = file_system.make_directories(folder);
  for (const auto& page : lockstep::cli::man_pages(shapes_of_all(), lockstep::cli::kVersion))
    if (done.ok()) done = lockstep::publish_file(file_system, folder / page.file, page.roff);
  if (done.ok()) return 0;
  std::cerr << "lockstep help --man: " << done.error().message << "\n";
  return lockstep::cli::status_of_input(done.error().code);
}

// help COMMAND [SUBCOMMAND]: as COMMAND [SUBCOMMAND] --help.
int help_about(int count, char** words) {
  const Command* const command = find_command(words[0]);
  if (command == nullptr) return unknown_command(words[0]);
  std::string flag = "--help";
  std::vector<char*> asked(words, words + count);
  asked.push_back(flag.data());
  asked.push_back(nullptr);
  return command->run(count + 1, asked.data());
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  std::signal(SIGXFSZ, SIG_IGN);  // beyond a limit on file sizes a write fails, and says so
  const std::string_view word = argc > 1 ? argv[1] : "--help";
  if (word == "help" && argc > 2 && std::string_view(argv[2]) == "--man")
    return write_man_pages(argc - 3, argv + 3);
  if (word == "help" && argc > 2) return help_about(argc - 2, argv + 2);
  if (word == "--help" || word == "-h" || word == "help") {
    print_help();
    return 0;
  }
  if (word == "--version") {
    std::cout << lockstep::cli::version_line("lockstep") << "\n";
    return 0;
  }
  // What a model says is its user's own.
  std::optional<lockstep::cli::PrintableStream> out;
  if (word != "generate") out.emplace(std::cout);
  const lockstep::cli::PrintableStream err(std::cerr);
  const Command* const command = find_command(word);
  if (command == nullptr) return unknown_command(std::string(word));
  const int status = command->run(argc - 1, argv + 1);
  lockstep::finish_task_threads();  // log lines
  return status;
}
