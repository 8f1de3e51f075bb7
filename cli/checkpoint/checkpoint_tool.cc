#include "cli/checkpoint/checkpoint_tool.h"

#include <iostream>

#include "base/json.h"
#include "checkpoint/load/chunk_reader.h"
#include "checkpoint/record/catalog.h"
#include "cli/shared/exit_status.h"

namespace lockstep::cli {

CLI::App* add_tool(CLI::App& app, const char* name, const char* what, const char* examples) {
  CLI::App* const command = app.add_subcommand(name, what);
  command->footer(examples);
  return command;
}

CLI::Option* add_threads_option(CLI::App* command, int& threads) {
  threads = checkpoint::reader_threads();
  return command->add_option("--threads", threads, "Threads that read and compress")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
}

int fail_tool(const char* tool, const Error& error) {
  std::cerr << "lockstep checkpoint " << tool << ": " << error.message << "\n";
  return status_of_input(error.code);
}

void print_json(const nlohmann::ordered_json& json) {
  // A path may be no UTF-8.
  std::cout << dump_json(json, 2) << "\n";
}

}  // namespace lockstep::cli
