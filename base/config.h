// The run's configuration: one plain struct, filled from TOML and `--section.key value` overrides.
// The table in config_fields.cc names every key once: section, key, type, limits, help, and whether
// the key is neutral (cannot change a bit of the loss curve). Everything is validated before any
// device or network is touched; an unknown key is an error that suggests the nearest known one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/config_training.h"
#include "base/result.h"

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
    std::string folder = "checkpoints";         // under dump_folder unless absolute
    int64_t interval = 50;                      // steps between saves; 0: none by steps
    double interval_minutes = 0;                // minutes between saves; 0: none by time
    int64_t ephemeral_interval = 0;             // steps between saves that go again; 0: none
    int64_t keep_latest_k = 3;                  // >= 2; 0: all
    int64_t keep_every = 0;                     // multiples of so many steps stay; 0: none
    double keep_minutes = 0;                    // one for each that many minutes stays; 0: none
    std::string codec = "zstd";                 // zstd | none | gzip
    int64_t threads = 1;                        // compressors of a rank
    int64_t nice = 0;                           // of the compressors, 0 to 19
    std::string when_busy = "skip";             // skip | wait
    int64_t max_failures = 3;                   // failed saves in a row that end the run
    double vote_timeout_seconds = 60;           // for all ranks to have written their part
    bool strict_identity = false;               // refuse to resume when bits may differ
    // Where a run without checkpoints of its own starts from.
    std::string initial_load_path;              // another run's checkpoint or folder; "": nothing
    bool initial_load_model_only = true;        // weights, not Adam's state
    std::vector<std::string> exclude_from_loading;  // patterns of tensor names, * for anything
    int64_t memory_interval = 0;                // steps between snapshots in memory; 0: none
    std::string memory_folder;                  // empty: /dev/shm
    bool buddy = false;                         // another node keeps a copy of each snapshot
  } checkpoint;
  struct Comm {
    double train_timeout_seconds = 100;
    double init_timeout_seconds = 60;
  } comm;
  struct Validation {
    int64_t freq = 0;                           // steps between validations; 0: never
    int64_t slots = 8;                          // held-out slots each time
  } validation;
  struct Metrics {
    int64_t log_freq = 10;
    bool enable_tensorboard = true;
    double peak_tflops = 0;  // measured GEMM peak of a rank's device for MFU; 0: unknown
  } metrics;
  struct Profiling {
    bool enable_profiling = false;
    std::string save_traces_folder = "profile_traces";  // under dump_folder unless absolute
    int64_t profile_freq = 10;                  // steps between traced steps
  } profiling;
  struct Data {
    std::string path = {}, kind = "tokens";     // one source; megatron | llmc | nanogpt | npy
    std::vector<std::string> sources = {};      // several, in place of path
    std::vector<int64_t> weights = {};          // of sources; empty: their training tokens
    double temperature = 1;                     // weights become weight^(1/temperature)
    bool document_mask = true;                  // attention stays inside documents, where known
    int64_t prefetch = 2;                       // slots kept ready
    double read_timeout_seconds = 60;           // of a read that fails or does not end
  } data;
  struct Launcher {
    // World size of each successive generation; the last one repeats.
    std::vector<int64_t> nproc_per_node;
    std::string on_worker_loss = "respawn";     // respawn | shrink
    int64_t min_nproc = 1;
    int64_t max_restarts = 3;
    double grace_seconds = 60;  // TERM to KILL: room for a step and a save
    double hang_seconds = 600;                  // no progress for this long is a hang
    std::string requeue = "auto";               // under Slurm: auto | never | force
    std::string nnodes = "1";                   // N or MIN:MAX
    std::string rdzv_endpoint;                  // HOST:PORT | file:DIR
    std::string rdzv_id;                        // tells jobs at one endpoint apart
    std::string local_addr;                     // an interface or address of this machine
    int64_t spares = 0;                         // nodes kept out while there are more than MIN
    std::string on_node_loss = "shrink";        // shrink | spare | wait | fail
    double last_call_seconds = 30;              // from MIN nodes on, for more to come
    std::string status_endpoint;                // HOST:PORT | INTERFACE:PORT; empty: none
  } launcher;
  struct Debug {
    std::string break_rule;  // tests only: 1 | 3 | 4 | 5 | 6, breaks that rule of the arithmetic
    std::vector<int64_t> nan_steps;  // tests only: steps whose loss is not a number
    std::vector<std::string> stop_at;  // tests only: where a worker stops (base/progress_page.h)
  } debug;

  std::filesystem::path dump_folder() const;
  std::filesystem::path checkpoint_folder() const;
  int64_t slots() const;          // V
  int64_t tokens_per_step() const;  // V * B * T
};

struct ParsedConfig {
  Config config;
  std::vector<std::string> positional;  // words that were not flags
};

// Reads `toml_path` (may be empty: defaults), then applies `arguments`: `--section.key value`,
// `--section.key=value`, `--alias value`; booleans also as a bare flag, and `--section.no_key`.
// `-` and `_` are alike. Limits and combinations are validate's business.
// Errors: kConfig, naming file, line, key and what would be right; kNotFound.
Result<ParsedConfig> parse_config(const std::filesystem::path& toml_path,
                                  const std::vector<std::string>& arguments);
// Limits and combinations that need no data or device. Errors: kConfig.
Result<void> validate(const Config& config);

// The same run with every 0 or empty value that stands for another one filled in: slots,
// global_batch_size, total_steps, head_dim, ffn_dim, dump_folder. (vocab_size is the data's.)
Config resolved(const Config& config);
// Every key, resolved, as a JSON object of sections.
std::string config_json(const Config& config);
// The keys that may change a bit of the loss curve, as "section.key=value" lines, sorted.
std::vector<std::string> identity_lines(const Config& config);
// Those, and the others that every rank of a job has to have alike: what a step, a save or a
// validation consists of, and when they are due.
std::vector<std::string> common_lines(const Config& config);
// Every key with default and meaning.
std::string config_help();

}  // namespace base
}  // namespace lockstep
