// What a training run said about its losses, read back for `lockstep compare`.
//
//   a run folder       metrics.jsonl (required), metrics.json, events.jsonl and logs/ (if there)
//   a metrics.jsonl    the same records alone
//   a console log      as torchtitan, Megatron-LM, llm.c, nanoGPT, Hugging Face Trainer print it
//   a trainer_state.json of Hugging Face Trainer, or a folder that has one
//
// A killed and resumed run redoes steps. The last record of a step counts; every redone record must
// repeat the first one's loss to the last bit, and one that does not is kept as a RedoneMismatch.
#pragma once

#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "cli/compare/run_memory.h"

namespace lockstep::cli {

// Of an audit in which all ranks computed one slot (audit.slot).
struct SlotRecord {
  int64_t slot = -1;  // -1: there was none
  std::string loss_hex;
  std::map<std::string, std::string> digests;  // of its gradients, by unit
  bool same = true;                            // all ranks gave the same
  std::vector<int64_t> wrong, undecided;       // ranks, where not
  std::string difference;                      // for people
};

inline bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

struct StepRecord {
  int64_t step = 0;
  double loss = 0;
  std::optional<double> grad_norm, validation_loss;
  bool exact = false;      // read from hexadecimal floats, so equality means equal bits
  int64_t generation = 0;  // 0 in console logs
  int64_t world_size = 0;  // 0: unknown
  double tokens = 0;       // 0: unknown
  double step_time_s = 0;
  std::vector<std::string> weights, gradients;  // digests by unit (docs/AUDIT.md); empty: none
  SlotRecord slot;
  std::string skipped;  // why the step made no update; "": it made one, or the log does not say
};

// One membership of ranks, as far as its steps were logged.
struct Generation {
  int64_t index = 0;
  int64_t world_size = 0;
  int64_t first_step = 0, last_step = 0;
  std::string ended_by;  // "rank 1: SIGKILL"; empty: it finished, or nobody wrote down why not
};

struct RedoneMismatch {
  int64_t step = 0;
  std::string quantity;  // "loss" or "gradient norm"
  double first = 0, redone = 0;
};

struct RunLog {
  std::filesystem::path source;
  std::string name;               // the folder's or file's name
  std::string format;             // "run folder", "torchtitan log", …
  std::vector<StepRecord> steps;  // by step, each step once
  std::vector<Generation> generations;
  std::vector<RedoneMismatch> mismatches;
  std::vector<std::string> identity;  // of a run folder: what its bits depend on
  std::vector<std::string> remarks;   // what a reader of the comparison should know
  int64_t redone_steps = 0;
  int64_t restarts = 0;
  std::optional<double> tokens_per_s, mfu_pct, tflops;
  bool rates_of_a_rank = false;  // tokens_per_s and tflops; else of all ranks
  RunMemory memory;
};

// Reads a run folder, a metrics.jsonl, a console log or a trainer_state.json.
// Errors: kNotFound, kIo; kConfig naming file and line when what is there is not a training log.
Result<RunLog> read_run_log(FileSystem& file_system, const std::filesystem::path& path);

// The pieces of the above that need no disk; `where` begins every message.
Result<RunLog> parse_metrics_jsonl(std::string_view contents, const std::string& where);
Result<RunLog> parse_console_log(std::string_view contents, const std::string& where);
bool is_trainer_state(std::string_view contents);
Result<RunLog> parse_trainer_state(std::string_view contents, const std::string& where);

}  // namespace lockstep::cli
