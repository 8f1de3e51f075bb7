#include "launcher/host/environment.h"

#include <algorithm>

#include "base/hash.h"
#include "base/text.h"
#include "launcher/host/hostlist.h"
#include "launcher/net/secret.h"

namespace lockstep::launcher {
namespace {

// Below Linux's ephemeral range (32768 and up), so that no outgoing connection holds the port.
constexpr uint64_t kFirstPort = 20000, kPortCount = 12000;

std::string step_task_count_name(const Environment& environment) {
  return environment.contains("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

Result<WorkerOrders> checked(WorkerOrders orders) {
  if (orders.rank >= orders.world_size || orders.local_rank >= orders.local_world_size ||
      orders.local_world_size > orders.world_size)
    return Error{Code::kConfig,
                 text("impossible rank: rank ", orders.rank, " of ", orders.world_size,
                      ", local rank ", orders.local_rank, " of ", orders.local_world_size)};
  return orders;
}

Result<WorkerOrders> torchrun_orders(const Environment& environment) {
  for (const char* name : {"RANK", "WORLD_SIZE"})
    LOCKSTEP_RETURN_IF_ERROR(number_variable(environment, name));
  LOCKSTEP_TRY(WorkerOrders orders, parse_torchrun_orders(environment));
  if (orders.local_world_size == 0) orders.local_world_size = orders.local_rank + 1;
  if (orders.world_size > 1 && variable(environment, "MASTER_ADDR").empty())
    return Error{
        Code::kConfig,
        "RANK and WORLD_SIZE are set, but MASTER_ADDR is not; set it to the address of rank 0"};
  LOCKSTEP_TRY(orders.generation, number_variable(environment, "TORCHELASTIC_RESTART_COUNT", 0));
  if (variable(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True")
    orders.store_server = StoreServer::kOther;
  const std::string run_id = variable(environment, "TORCHELASTIC_RUN_ID");
  orders.nonce =
      nonce_of(xxh3_64(run_id), xxh3_64(orders.store), static_cast<uint64_t>(orders.generation));
  return checked(orders);
}

// Rank 0 runs on the first node of the step. (SLURM_LAUNCH_NODE_IPADDR is where srun was typed,
// which may be a login node: the last resort.)
Result<std::string> slurm_master(const Environment& environment) {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const std::string list = variable(environment, name);
    if (list.empty()) continue;
    auto hosts = expand_hostlist(list);
    if (!hosts) return hosts.error().in(name);
    return hosts->size() == 1 ? std::string("127.0.0.1") : hosts->front();
  }
  const std::string address = variable(environment, "SLURM_LAUNCH_NODE_IPADDR");
  if (!address.empty()) return address;
  return Error{
      Code::kConfig,
      "cannot tell the address of rank 0, because SLURM_STEP_NODELIST is not set; start with srun"};
}

Result<int> slurm_local_world_size(const Environment& environment, int world_size) {
  const std::string list = variable(environment, "SLURM_STEP_TASKS_PER_NODE");
  LOCKSTEP_TRY(const auto node, number_variable(environment, "SLURM_NODEID", 0));
  if (list.empty()) return world_size;
  auto tasks = expand_tasks_per_node(list);
  if (!tasks) return tasks.error().in("SLURM_STEP_TASKS_PER_NODE");
  if (node >= std::ssize(*tasks))
    return Error{Code::kConfig,
                 text("SLURM_NODEID ", node, " is not in SLURM_STEP_TASKS_PER_NODE ", list)};
  return static_cast<int>((*tasks)[static_cast<size_t>(node)]);
}

Result<WorkerOrders> slurm_orders(const Environment& environment) {
  WorkerOrders orders;
  LOCKSTEP_TRY(orders.rank, number_variable<int>(environment, "SLURM_PROCID"));
  LOCKSTEP_TRY(orders.world_size,
               number_variable<int>(environment, step_task_count_name(environment)));
  LOCKSTEP_TRY(orders.local_rank, number_variable<int>(environment, "SLURM_LOCALID"));
  LOCKSTEP_TRY(orders.local_world_size, slurm_local_world_size(environment, orders.world_size));
  LOCKSTEP_TRY(const std::string master, slurm_master(environment));
  LOCKSTEP_TRY(const auto job, number_variable<uint64_t>(environment, "SLURM_JOB_ID"));
  LOCKSTEP_TRY(const auto step, number_variable<uint64_t>(environment, "SLURM_STEP_ID", 0));
  LOCKSTEP_TRY(orders.generation, number_variable(environment, "SLURM_RESTART_COUNT", 0));
  const uint64_t port = kFirstPort + mix64(job * 65537 + step) % kPortCount;
  orders.store = text("tcp:", master, ":", port);
  orders.nonce = nonce_of(job, step, static_cast<uint64_t>(orders.generation));
  return checked(orders);
}

// malloc asks for pages of 2 MB: a process has its memory sooner, and gives it back sooner.
void use_large_pages(std::string& tunables) {
  const std::string name = "glibc.malloc.hugetlb";
  if (tunables.find(name) != std::string::npos) return;
  tunables += text(tunables.empty() ? "" : ":", name, "=1");
}

}  // namespace

Launcher detect_launcher(const Environment& environment) {
  if (environment.contains("RANK") && environment.contains("WORLD_SIZE"))
    return Launcher::kTorchrun;
  // A batch script has SLURM_PROCID and SLURM_NTASKS too, but only a step's tasks are multiplied.
  const bool in_step =
      environment.contains("SLURM_PROCID") && environment.contains("SLURM_STEP_ID");
  const auto tasks = number_variable(environment, step_task_count_name(environment), 1);
  return in_step && tasks && tasks.value() > 1 ? Launcher::kSlurm : Launcher::kAlone;
}

Result<WorkerOrders> orders_from(const Environment& environment) {
  return detect_launcher(environment) == Launcher::kTorchrun ? torchrun_orders(environment)
                                                             : slurm_orders(environment);
}

Environment worker_variables(Environment inherited, const WorkerOrders& orders, int64_t threads) {
  Environment& out = inherited;
  for (auto& [name, value] : encode(orders)) out[name] = value;
  out.erase(net::kSecretVariable);
  // Fixed thread counts are part of a run's identity: MKL must not choose its own.
  out["OMP_NUM_THREADS"] = out["MKL_NUM_THREADS"] = std::to_string(threads);
  out["MKL_DYNAMIC"] = "FALSE";
  use_large_pages(out["GLIBC_TUNABLES"]);
  return inherited;
}

std::string nonce_of(uint64_t a, uint64_t b, uint64_t c) {
  constexpr size_t kDigits = 6;
  const std::string digits = hex64(mix64(mix64(mix64(a) ^ b) ^ c));
  return digits.substr(digits.size() - kDigits);
}

namespace {

// A build says it; a wheel has both kinds of workers, and its script says which one it chose.
bool workers_use_gpus(const Environment& environment, bool built_for_gpus) {
  const auto chosen = environment.find("LOCKSTEP_WORKER");
  const auto for_gpus = environment.find("LOCKSTEP_GPU_WORKER");
  return built_for_gpus || (chosen != environment.end() && for_gpus != environment.end() &&
                            chosen->second == for_gpus->second);
}

}  // namespace

int64_t default_worker_count(const Environment& environment,
                             const std::filesystem::path& gpu_folder, bool built_for_gpus) {
  if (!workers_use_gpus(environment, built_for_gpus)) return 1;
  if (const auto visible = environment.find("CUDA_VISIBLE_DEVICES"); visible != environment.end()) {
    if (visible->second.empty() || visible->second == "-1") return 1;
    return static_cast<int64_t>(split(visible->second, ',').size());
  }
  std::error_code error;
  const auto entries = std::filesystem::directory_iterator(gpu_folder, error);
  return error ? 1 : std::max<int64_t>(1, std::distance(begin(entries), end(entries)));
}

}  // namespace lockstep::launcher
