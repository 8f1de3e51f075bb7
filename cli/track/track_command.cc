#include "cli/track/track_command.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/shared/command_words.h"
#include "cli/shared/python_tools.h"

namespace lockstep::cli {
namespace {

constexpr const char* kTrackAbout =
    R"(Follows a run and puts its curves, config, events and state into Weights & Biases or MLflow.
It only reads the run's folder, so training does not wait for it.

It ends when the run is done. After a run that failed or was stopped it waits 5 minutes for a
restart. When it is killed or started again later, it continues in the same run of the tracker
(RUN_FOLDER/track/id) with the first missing step, so each step is there once.

It runs the Python of LOCKSTEP_PYTHON, else python3, with the tracker's client: pip install wandb,
pip install mlflow. The client's own variables set server and user (WANDB_MODE, WANDB_ENTITY,
WANDB_API_KEY, MLFLOW_TRACKING_URI, …).

Examples:
  lockstep track results/a --to wandb --project tiny
  WANDB_MODE=offline lockstep track results/a --to wandb --once
  MLFLOW_TRACKING_URI=sqlite:///mlflow.db lockstep track results/a --to mlflow
)";

}  // namespace

int track_command(int argc, char** argv) {
  std::string run, tracker, project;
  bool once = false;
  CLI::App app{kTrackAbout, "lockstep track"};
  app.add_option("run", run, "The run's folder; the run may start later")
      ->required()
      ->type_name("RUN_FOLDER");
  app.add_option("--to", tracker, "The tracker")
      ->required()
      ->check(CLI::IsMember({"wandb", "mlflow"}));
  app.add_option("--project", project,
                 "Project of W&B, experiment of MLflow; without it WANDB_PROJECT or "
                 "MLFLOW_EXPERIMENT_NAME, else lockstep")
      ->type_name("NAME");
  app.add_flag("--once", once, "Export what is there, then end");
  if (const auto end = parse_words(app, argc, argv)) return *end;
  std::vector<std::string> arguments{"--to=" + tracker};
  if (!project.empty()) arguments.push_back("--project=" + project);
  if (once) arguments.push_back("--once");
  arguments.insert(arguments.end(), {"--", run});
  const Error error = become_tool("track", arguments);
  log_error(error.message);
  return exit_status(error.code);
}

}  // namespace lockstep::cli
