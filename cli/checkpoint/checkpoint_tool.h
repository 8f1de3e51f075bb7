// What the subcommands of `lockstep checkpoint` share: the table of them, and how they say what
// went wrong.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace lockstep::cli {

// A subcommand that was added to the app, and what runs when it was typed; its exit status.
struct CheckpointTool {
  CLI::App* command;
  std::function<int()> run;
};
using CheckpointTools = std::vector<CheckpointTool>;

// Each adds its subcommands; they own their options.
void add_look_tools(CLI::App& app, CheckpointTools& tools);   // list, inspect, verify
void add_diff_tool(CLI::App& app, CheckpointTools& tools);    // diff
void add_write_tools(CLI::App& app, CheckpointTools& tools);  // reshard, export, import, index
void add_prune_tool(CLI::App& app, CheckpointTools& tools);   // prune

CLI::App* add_tool(CLI::App& app, const char* name, const char* what, const char* examples);
CLI::Option* add_threads_option(CLI::App* command, int& threads);

// Prints the error; status_of_input().
int fail_tool(const char* tool, const Error& error);

// To stdout, on several lines.
void print_json(const nlohmann::ordered_json& json);

}  // namespace lockstep::cli
