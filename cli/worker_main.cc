// lockstep-worker: one rank of a training run, the sampler behind `lockstep generate`, the model
// behind `lockstep eval`, the devices behind `lockstep doctor`. Started by `lockstep`, srun or
// torchrun-like variables; people type `lockstep`.
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "base/task_thread.h"
#include "cli/shared/version.h"
#include "core/comm/interruption.h"
#include "core/device/devices.h"
#include "core/train/device_probe.h"
#include "core/train/evaluate.h"
#include "core/train/process.h"
#include "core/train/same_run.h"
#include "core/train/sampling/generate.h"
#include "core/train/trainer.h"
#include "core/train/turns.h"
#include "launcher/control/incident.h"
#include "launcher/host/ignored_signals.h"
#include "layout/strategy.h"
#include "worker_link/worker_orders.h"

namespace lockstep {
namespace {

std::atomic<bool> stop_requested{false};

// Pinned before LibTorch looks: the number of threads is part of the arithmetic.
void pin_threads(const Config& config) {
  const std::string threads = std::to_string(config.training.threads);
  setenv("MKL_DYNAMIC", "FALSE", 1);
  setenv("MKL_NUM_THREADS", threads.c_str(), 1);
  setenv("OMP_NUM_THREADS", threads.c_str(), 1);
  setenv(core::kCublasWorkspace[0], core::kCublasWorkspace[1], 1);
  core::set_up_process(static_cast<int>(config.training.threads));
}

// A thread of its own waits for the signals that ask to stop, and no other one is interrupted: in
// oneDNN's kernels the stack pointer may be where a handler's frame would damage the heap.
// Requires: no other thread has been started; those to come inherit the mask.
void take_signals() {
  const sigset_t asked = launcher::not_ignored({SIGTERM, SIGINT, SIGUSR1, SIGUSR2});
  pthread_sigmask(SIG_BLOCK, &asked, nullptr);
  std::thread([asked] {
    for (int signal = 0;;)
      if (sigwait(&asked, &signal) == 0) stop_requested = true;
  }).detach();
}

std::string first_line(const std::exception& e) {
  const std::string what = e.what();
  return what.substr(0, what.find('\n'));
}

// LibTorch's allocators of host memory throw a plain error; that of a device has words of its own.
bool is_out_of_memory(const std::exception& e) {
  const std::string_view what = e.what();
  return dynamic_cast<const std::bad_alloc*>(&e) != nullptr ||
         what.find("DefaultCPUAllocator: ") != what.npos || what.find("out of memory") != what.npos;
}

// Ends the process, and tears nothing down. What was logged last is written first: the launcher
// reads there why this rank has ended.
[[noreturn]] void leave(int status) {
  finish_task_threads();
  _exit(status);
}

// Nothing is torn down where an allocation failed.
[[noreturn]] void end_out_of_memory(const std::exception& e) {
  log_error(
      "out of memory: `lockstep plan` with the same options shows the memory that the run needs (",
      first_line(e), ")");
  std::cout.flush();
  leave(launcher::kExitNoMemory);
}

core::RendezvousOptions rendezvous_of(const WorkerOrders& orders, const Config& config) {
  core::RendezvousOptions rendezvous;
  rendezvous.rank = orders.rank;
  rendezvous.world_size = orders.world_size;
  rendezvous.local_rank = orders.local_rank;
  rendezvous.local_world_size = orders.local_world_size;
  rendezvous.store = orders.store;
  rendezvous.serve = orders.store_server == StoreServer::kRank0;
  rendezvous.prefix = text("g", orders.generation, "-", orders.nonce);
  // The user's word before the agent's.
  const char* const asked = std::getenv("GLOO_SOCKET_IFNAME");
  if (asked != nullptr) {
    rendezvous.interface = asked;
  } else if (orders.store.starts_with("file:")) {
    rendezvous.interface = "lo";
  }
  if (asked == nullptr || *asked == '\0') rendezvous.bind_address = orders.bind_address;
  rendezvous.init_timeout_s = config.comm.init_timeout_seconds;
  rendezvous.timeout_s = config.comm.train_timeout_seconds;
  rendezvous.asked_to_stop = [] { return stop_requested.load(); };
  rendezvous.native_sums = config.training.reduction == Reduction::kNative;
  rendezvous.all_exchange = config.optimizer.name == OptimizerKind::kMuon;
  rendezvous.buddies = config.checkpoint.buddy;
  rendezvous.sizes = [&config](int world_size, const layout::NodeRanks& nodes) {
    return layout::group_sizes(config, world_size, nodes);
  };
  rendezvous.device = core::local_device().of_rank(orders.local_rank);
  return rendezvous;
}

// The generation is over, and not by this rank's fault.
bool is_over(const Error& error) {
  return error.code == Code::kPeerLost || error.code == Code::kChanged || core::interrupted();
}

// Why this process ends; a stop that was asked for is no error.
void log_end(const Error& error) {
  const bool planned = error.code == Code::kAborted || error.code == Code::kChanged;
  log_line(planned ? Level::kNotice : Level::kError, error.message);
}

// One generation. What fails is not torn down where a pending collective may still write to it; on
// CPUs none can, for Gloo's work owns its buffers, so that such a process `stays`: it returns the
// error and can serve another generation.
Result<void> take_turn(const Config& config, const WorkerOrders& orders, ProgressPage& page,
                       bool stays) {
  core::RendezvousOptions rendezvous = rendezvous_of(orders, config);
  set_log_prefix(text("rank ", rendezvous.rank));
  // Under an agent, whose console shows rank 0's stdout.
  show_log_on_stdout(rendezvous.rank == 0 && orders.serves != Serves::kOne);
  const std::string interface =  // "=": this name, not all that begin with it
      orders.bind_interface.empty() ? rendezvous.interface : "=" + orders.bind_interface;
  if (!interface.empty()) setenv("NCCL_SOCKET_IFNAME", interface.c_str(), /*overwrite=*/0);
  LOCKSTEP_RETURN_IF_ERROR(page.stop_at(config.debug.stop_at, orders.generation, orders.rank));
  core::device_of(rendezvous.device).set_up(rendezvous.device);
  rendezvous.facts = core::own_facts(rendezvous.device, host_name());
  if (config.parallelism.strategy == ShardingStrategy::kSingle && rendezvous.world_size > 1)
    return Error{Code::kConfig, text("parallelism.strategy = \"single\" runs on one rank, but the "
                                     "number of ranks of this job is ",
                                     rendezvous.world_size, "; use ddp or full_shard")};
  rendezvous.met = [&config](core::Communicator& all, core::SharedStore& store) {
    return core::check_same_run("config", common_lines(config), all, store,
                                config.comm.init_timeout_seconds);
  };
  LOCKSTEP_TRY(core::Membership membership, core::join(rendezvous));
  core::TrainerEnvironment env{posix_file_system(),
                               system_clock(),
                               membership,
                               page,
                               stop_requested,
                               orders.nonce,
                               orders.generation,
                               std::cout,
                               std::filesystem::absolute(config.checkpoint_folder())};
  std::unique_ptr<core::Trainer> trainer;
  const auto run = [&]() -> Result<void> {
    try {
      LOCKSTEP_TRY(trainer, core::Trainer::create(config, env));
      return trainer->run();
    } catch (const std::exception& e) {  // LibTorch throws
      if (is_out_of_memory(e)) end_out_of_memory(e);
      return Error{Code::kBug, first_line(e)};
    }
  };
  const Result<void> done = run();
  if (done.ok()) return done;
  if (!stays || !is_over(done.error())) {
    log_end(done.error());
    leave(exit_status(done.error().code));
  }
  core::interrupt();  // what our other threads wait for
  trainer.reset();
  core::destroy_in_background(std::move(membership));
  return done;
}

Result<void> train(const Config& config) {
  log_on_a_thread();
  LOCKSTEP_TRY(WorkerOrders orders, parse_worker_orders(own_environment()));
  if (orders.serves == Serves::kOne) {
    std::unique_ptr<ProgressPage> page = ProgressPage::in_memory();
    if (!orders.progress_page.empty()) {
      LOCKSTEP_TRY(page, ProgressPage::open(orders.progress_page));
    }
    return take_turn(config, orders, *page, /*stays=*/false);
  }
  LOCKSTEP_TRY(const auto turns, core::Turns::open(posix_file_system(), orders.progress_page));
  const bool stays = core::local_device().count() == 0;
  if (!stays) turns->page().say_serves_one();
  if (orders.serves == Serves::kLater) {
    if (stays)
      core::keep_memory(orders.keep_bytes);
    else
      core::warm_up(orders.local_rank);
    LOCKSTEP_TRY(orders, turns->next());
  }
  for (;;) {
    const Result<void> done = take_turn(config, orders, turns->page(), stays);
    if (done.ok() || !stays || !is_over(done.error())) return done;
    if (done.error().code == Code::kChanged)
      log_notice(done.error().message);
    else
      log_warning(done.error().message, "; this process waits for the next restart");
    stop_requested = false;
    std::cout.flush();
    LOCKSTEP_TRY(orders, turns->next());
  }
}

// The JSON object on standard input, which has `member`.
Result<nlohmann::json> request(const char* member) {
  const std::string words((std::istreambuf_iterator<char>(std::cin)),
                          std::istreambuf_iterator<char>());
  auto json = nlohmann::json::parse(words, nullptr, false);
  if (!json.is_object() || !json.contains(member))
    return Error{Code::kConfig, "lockstep-worker needs its request as JSON on standard input"};
  return json;
}

// stdin: {"tokens": path, "logits": path or ""}, or {"tokens": "", "split": name}, each with
// "of_folder" and "checkpoint" (core/train/model_weights.h); stdout: {"loss": …}.
Result<void> evaluate(Config config) {
  LOCKSTEP_TRY(const nlohmann::json json, request("tokens"));
  config.parallelism.strategy = ShardingStrategy::kSingle;
  core::EvaluateOptions options;
  options.tokens = json["tokens"].get<std::string>();
  options.logits = json.value("logits", std::string());
  options.split = json.value("split", options.split);
  options.weights = {.of_folder = json.value("of_folder", false),
                     .checkpoint = json.value("checkpoint", std::string())};
  LOCKSTEP_TRY(const core::Evaluation e,
               core::evaluate(posix_file_system(), std::move(config), options));
  const nlohmann::ordered_json report{{"loss", e.loss},
                                      {"perplexity", std::exp(e.loss)},
                                      {"tokens", e.counted_tokens},
                                      {"parameters", e.parameters}};
  std::cout << report.dump() << "\n";
  return {};
}

// stdin: {"prompts": [[ids]…], "counts": [n…], "temperature": x, "top_k": k, "top_p": p, "seed": s,
// "vocab": v, "ends": [...], "together": n, "of_folder": b, "checkpoint": path or ""}; stdout, at
// once: a line for each token, "PROMPT ID", or "PROMPT ID end" for one that ends its text.
Result<void> generate(Config config) {
  LOCKSTEP_TRY(const nlohmann::json json, request("prompts"));
  core::GenerateOptions options;
  const nlohmann::json& prompts = json["prompts"];
  for (size_t i = 0; i < prompts.size(); ++i)
    options.prompts.push_back(
        {prompts[i].get<std::vector<int64_t>>(), json["counts"].at(i).get<int64_t>()});
  options.sampling.temperature = json.value("temperature", options.sampling.temperature);
  options.sampling.top_k = json.value("top_k", options.sampling.top_k);
  options.sampling.top_p = json.value("top_p", options.sampling.top_p);
  options.seed = json.value("seed", options.seed);
  options.vocab = json.value("vocab", options.vocab);
  options.ends = json.value("ends", options.ends);
  options.together = json.value("together", options.together);
  options.weights.of_folder = json.value("of_folder", false);
  options.weights.checkpoint = json.value("checkpoint", std::string());
  config.parallelism.strategy = ShardingStrategy::kSingle;
  const auto done =
      core::generate(posix_file_system(), config, options, [](const core::DrawnToken& token) {
        std::cout << token.prompt << ' ' << token.id << (token.ends ? " end" : "") << std::endl;
        return !stop_requested;
      });
  // A run without a checkpoint was named wrongly.
  if (!done.ok() && done.error().code == Code::kNotFound)
    return Error{Code::kConfig, done.error().message};
  return done;
}

// stdout: what this worker computes with, and how fast.
Result<void> probe() {
  const core::DeviceProbe p = core::probe_devices();
  const nlohmann::ordered_json report{{"device", p.device},
                                      {"torch", p.torch},
                                      {"nccl", p.nccl},
                                      {"cuda_build", p.build_for_devices},
                                      {"cuda_devices", p.devices},
                                      {"threads", p.threads},
                                      {"fp32_tflops", p.fp32_tflops},
                                      {"bf16_tflops", p.bf16_tflops}};
  std::cout << report.dump() << "\n";
  return {};
}

Result<void> dispatch(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "--version") {
    std::cout << cli::version_line("lockstep-worker") << "\n";
    return {};
  }
  if (command != "train" && command != "generate" && command != "eval" && command != "probe")
    return Error{
        Code::kConfig,
        "lockstep-worker cannot be run by hand, because lockstep starts it; see `lockstep --help`"};
  const std::vector<std::string> arguments(argv + 2, argv + argc);
  LOCKSTEP_TRY(const ParsedConfig words, parse_config("", arguments));
  const std::string file = words.positional.empty() ? "" : words.positional[0];
  LOCKSTEP_TRY(const ParsedConfig parsed, parse_config(file, arguments));
  LOCKSTEP_RETURN_IF_ERROR(validate(parsed.config));
  pin_threads(parsed.config);
  if (command == "train") return train(parsed.config);
  if (command == "probe") return probe();
  return command == "eval" ? evaluate(parsed.config) : generate(parsed.config);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::take_signals();
  std::signal(SIGXFSZ, SIG_IGN);  // beyond a limit on file sizes a write fails, and says so
  int status = 0;
  try {
    const auto done = lockstep::dispatch(argc, argv);
    if (!done.ok()) {
      lockstep::log_end(done.error());
      status = lockstep::exit_status(done.error().code);
    }
  } catch (const std::exception& e) {  // LibTorch throws
    if (lockstep::is_out_of_memory(e)) lockstep::end_out_of_memory(e);
    lockstep::log_error(lockstep::first_line(e));
    status = lockstep::exit_status(lockstep::Code::kBug);
  }
  std::cout.flush();
  lockstep::leave(status);  // Gloo's threads may still hold sockets of peers
}
