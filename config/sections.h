// Config: every section of the run's configuration as a plain struct, with its defaults. The table
// of keys (config_field.h) and all that reads or writes a configuration (config.h) stand on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/config_training.h"

namespace lockstep {
inline namespace base {

struct Config {
  struct Job {
    std::string name = "run";  // the run's name; default dump folder results/training/<name>
    std::string dump_folder;   // empty: results/training/<name>
    std::string description;
  } job;
  using Model = ModelConfig;
  Model model;
  using Optimizer = OptimizerConfig;
  Optimizer optimizer;
  using LrScheduler = LrSchedulerConfig;
  LrScheduler lr_scheduler;
  using Training = TrainingConfig;
  Training training;
  using Parallelism = ParallelismConfig;
  Parallelism parallelism;
  using ActivationCheckpoint = ActivationCheckpointConfig;
  ActivationCheckpoint activation_checkpoint;
  using Lora = LoraConfig;
  Lora lora;
  struct Checkpoint {
    bool enable = true;
    std::string folder = "checkpoints";  // under dump_folder unless absolute
    int64_t interval = 50;               // steps between saves; 0: none by steps
    double interval_minutes = 0;         // minutes between saves; 0: none by time
    int64_t ephemeral_interval = 0;      // steps between saves that go again; 0: none
    int64_t keep_latest_k = 3;           // >= 2; 0: all
    int64_t keep_every = 0;              // multiples of so many steps stay; 0: none
    double keep_minutes = 0;             // one for each that many minutes stays; 0: none
    bool keep_best = false;              // save where the validation loss is lowest; that one stays
    Codec codec = Codec::kZstd;
    int64_t threads = 1;         // compressors of a rank
    int64_t nice = 0;            // of the compressors, 0 to 19
    int64_t ranks_per_file = 1;  // of a node, whose state one of them writes into a file
    WhenBusy when_busy = WhenBusy::kSkip;
    double outage_minutes = 10;        // for which saves may fail before they end the run
    double vote_timeout_seconds = 60;  // for all ranks to have written their part
    bool strict_identity = false;      // refuse to resume when bits may differ
    // Where a run without checkpoints of its own starts from.
    std::string initial_load_path;        // another run's checkpoint or folder; "": nothing
    bool initial_load_model_only = true;  // weights, not Adam's state
    std::vector<std::string> exclude_from_loading;  // patterns of tensor names, * for anything
    int64_t memory_interval = 0;                    // steps between snapshots in memory; 0: none
    std::string memory_folder;                      // empty: /dev/shm
    bool buddy = false;                             // another node keeps a copy of each snapshot
  } checkpoint;
  struct Comm {
    double train_timeout_seconds = 100;
    double init_timeout_seconds = 60;
  } comm;
  struct Validation {
    int64_t freq = 0;      // steps between validations; 0: never
    int64_t slots = 8;     // held-out slots each time
    int64_t patience = 0;  // so many in a row without a lower loss end the run; 0: never
  } validation;
  struct Audit {
    int64_t interval = 0;  // steps between audits; 0: none
    AuditAction action = AuditAction::kWarn;
    int64_t slot = -1;  // all ranks compute this one in an audit; -1: each that of another rank
  } audit;
  struct Metrics {
    int64_t log_freq = 10;
    bool enable_tensorboard = true;
    double peak_tflops = 0;  // measured GEMM peak of a rank's device for MFU; 0: unknown
  } metrics;
  struct Profiling {
    bool enable_profiling = false;
    std::string save_traces_folder = "profile_traces";  // under dump_folder unless absolute
    int64_t profile_freq = 10;                          // steps between traced steps
  } profiling;
  struct Data {
    std::string path = {};  // one source
    DataKind kind = DataKind::kTokens;
    std::vector<std::string> sources = {};         // several, in place of path
    std::vector<int64_t> weights = {};             // of sources; empty: their training tokens
    double temperature = 1;                        // weights become weight^(1/temperature)
    OnDataChange on_change = OnDataChange::kJump;  // of batch, sequence length or sources
    bool document_mask = true;                     // attention stays inside documents, where known
    int64_t prefetch = 2;                          // slots kept ready
    double read_timeout_seconds = 60;              // of a read that fails or does not end
  } data;
  struct Launcher {
    // World size of each successive generation; the last one repeats.
    std::vector<int64_t> nproc_per_node;
    OnWorkerLoss on_worker_loss = OnWorkerLoss::kRespawn;
    int64_t min_nproc = 1;
    int64_t max_restarts = 3;
    double grace_seconds = 60;         // TERM to KILL: room for a step and a save
    double hang_seconds = 600;         // no progress for this long is a hang
    Requeue requeue = Requeue::kAuto;  // under Slurm
    std::string nnodes = "1";          // N or MIN:MAX
    std::string rdzv_endpoint;         // HOST:PORT | file:DIR
    std::string rdzv_id;               // tells jobs at one endpoint apart
    std::string local_addr;            // an interface or address of this machine
    int64_t spares = 0;                // nodes kept out while there are more than MIN
    OnNodeLoss on_node_loss = OnNodeLoss::kShrink;
    Grow grow = Grow::kNever;        // a spare that makes steps faster joins the running job
    double grow_after_seconds = 30;  // once it has stayed for so long
    double last_call_seconds = 30;   // from MIN nodes on, for more to come
    double join_seconds = 600;       // for MIN nodes to come
    double silence_seconds = 0;      // of a node: it is lost; 0: from the number of nodes
    double ack_seconds = 0;          // of a node, to agree to a generation; 0: likewise
    double reap_seconds = 10;        // of a node's workers, to end for a generation
    StragglerAction straggler = StragglerAction::kWarn;
    double straggler_factor = 1.5;  // of the others' time for a slot: such a rank is slow
    double straggler_seconds = 60;  // for so long
    HealthAction health = HealthAction::kWarn;
    std::string status_endpoint;  // HOST:PORT | INTERFACE:PORT; empty: none
  } launcher;
  struct Debug {
    BrokenRule break_rule = BrokenRule::kNone;  // tests only
    std::vector<int64_t> nan_steps;             // tests only: steps whose loss is not a number
    std::vector<std::string> stop_at;  // tests only: where a worker stops (progress_page.h)
  } debug;

  std::filesystem::path dump_folder() const;
  std::filesystem::path checkpoint_folder() const;
  int64_t slots() const;            // V
  int64_t tokens_per_step() const;  // V * B * T
};

}  // namespace base
}  // namespace lockstep
