#include "cli/checkpoint/checkpoint_command.h"

#include "cli/checkpoint/checkpoint_tool.h"
#include "cli/shared/command_words.h"

namespace lockstep::cli {
namespace {

constexpr const char* kCheckpointExamples = R"(Examples:
  lockstep checkpoint list results/training/demo
  lockstep checkpoint inspect results/training/demo            # the newest one
  lockstep checkpoint verify results/training/demo/checkpoints/step_00000100.g1-7f2a91
  lockstep checkpoint diff results/training/a results/training/b
  lockstep checkpoint export results/training/demo weights/ --dtype bf16
  lockstep checkpoint import weights/ imported/
  lockstep checkpoint reshard results/training/demo resharded/ --world-size 8
  lockstep checkpoint prune results/training/demo --keep-latest 2 --keep-every 1000 --dry-run

DIR is a checkpoint, a folder of checkpoints, or a run folder. A folder stands for its newest
checkpoint. Each command needs a few hundred MB of memory for a checkpoint of any size, takes
--json, and exits with 64 when its input is wrong. Any HDF5 program reads index.h5 in a checkpoint
(h5py needs hdf5plugin): h5py.File("index.h5")["param/NAME"][:])";

}  // namespace

int checkpoint_command(int argc, char** argv) {
  CLI::App app("Looks at checkpoints, compares and converts them.", "lockstep checkpoint");
  CheckpointTools tools;
  add_look_tools(app, tools);
  add_diff_tool(app, tools);
  add_write_tools(app, tools);
  add_prune_tool(app, tools);
  app.require_subcommand(1);
  app.footer(kCheckpointExamples);
  if (const auto end = parse_words(app, argc, argv)) return *end;
  for (const CheckpointTool& tool : tools)
    if (tool.command->parsed()) return tool.run();
  return exit_status(Code::kBug);
}

}  // namespace lockstep::cli
