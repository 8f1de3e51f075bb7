#include "launcher/host/environment.h"

#include <algorithm>
#include <charconv>

#include "base/hash.h"
#include "base/text.h"
#include "launcher/host/hostlist.h"
#include "launcher/net/secret.h"

namespace lockstep::launcher {
namespace {

// Below Linux's ephemeral range (32768 and up), so that no outgoing connection holds the port.
constexpr uint64_t kFirstPort = 20000, kPortCount = 12000;

std::string variable(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

Result<int64_t> number(const Environment& environment, const std::string& name) {
  const std::string value = variable(environment, name);
  int64_t parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (value.empty() || error != std::errc{} || end != value.data() + value.size() || parsed < 0)
    return Error{Code::kConfig,
                 text("environment variable ", name, " must be a number, not \"", value, "\"")};
  return parsed;
}

Result<int64_t> number_or(const Environment& environment, const std::string& name,
                          int64_t otherwise) {
  if (variable(environment, name).empty()) return otherwise;
  return number(environment, name);
}

std::string step_task_count_name(const Environment& environment) {
  return environment.contains("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

Result<WorkerPlace> checked(WorkerPlace place) {
  if (place.world_size < 1 || place.rank >= place.world_size ||
      place.local_rank >= place.local_world_size || place.local_world_size > place.world_size)
    return Error{Code::kConfig,
                 text("impossible place: rank ", place.rank, " of ", place.world_size,
                      ", local rank ", place.local_rank, " of ", place.local_world_size)};
  place.store = text("tcp:", place.master_addr, ":", place.master_port);
  return place;
}

Result<WorkerPlace> torchrun_place(const Environment& environment) {
  WorkerPlace place;
  LOCKSTEP_TRY(place.rank, number(environment, "RANK"));
  LOCKSTEP_TRY(place.world_size, number(environment, "WORLD_SIZE"));
  LOCKSTEP_TRY(place.local_rank, number_or(environment, "LOCAL_RANK", 0));
  LOCKSTEP_TRY(place.local_world_size,
               number_or(environment, "LOCAL_WORLD_SIZE", place.local_rank + 1));
  place.master_addr = variable(environment, "MASTER_ADDR");
  if (place.master_addr.empty() && place.world_size > 1)
    return Error{Code::kConfig, "RANK and WORLD_SIZE are set, but MASTER_ADDR is not"};
  if (place.master_addr.empty()) place.master_addr = "127.0.0.1";
  LOCKSTEP_TRY(place.master_port, number_or(environment, "MASTER_PORT", 29500));
  LOCKSTEP_TRY(place.generation, number_or(environment, "TORCHELASTIC_RESTART_COUNT", 0));
  place.hosts_store = variable(environment, "TORCHELASTIC_USE_AGENT_STORE") != "True";
  const std::string run_id = variable(environment, "TORCHELASTIC_RUN_ID");
  place.nonce =
      nonce_of(xxh3_64(run_id + "@" + place.master_addr), static_cast<uint64_t>(place.master_port),
               static_cast<uint64_t>(place.generation));
  return checked(place);
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
  return Error{Code::kConfig, "SLURM_STEP_NODELIST is not set: no address for rank 0"};
}

Result<int64_t> slurm_local_world_size(const Environment& environment, int64_t world_size) {
  const std::string list = variable(environment, "SLURM_STEP_TASKS_PER_NODE");
  LOCKSTEP_TRY(const int64_t node, number_or(environment, "SLURM_NODEID", 0));
  if (list.empty()) return world_size;
  auto tasks = expand_tasks_per_node(list);
  if (!tasks) return tasks.error().in("SLURM_STEP_TASKS_PER_NODE");
  if (static_cast<size_t>(node) >= tasks->size())
    return Error{Code::kConfig,
                 text("SLURM_NODEID ", node, " is not in SLURM_STEP_TASKS_PER_NODE ", list)};
  return (*tasks)[static_cast<size_t>(node)];
}

Result<WorkerPlace> slurm_place(const Environment& environment) {
  WorkerPlace place;
  LOCKSTEP_TRY(place.rank, number(environment, "SLURM_PROCID"));
  LOCKSTEP_TRY(place.world_size, number(environment, step_task_count_name(environment)));
  LOCKSTEP_TRY(place.local_rank, number(environment, "SLURM_LOCALID"));
  LOCKSTEP_TRY(place.local_world_size, slurm_local_world_size(environment, place.world_size));
  LOCKSTEP_TRY(place.master_addr, slurm_master(environment));
  LOCKSTEP_TRY(const int64_t job, number(environment, "SLURM_JOB_ID"));
  LOCKSTEP_TRY(const int64_t step, number_or(environment, "SLURM_STEP_ID", 0));
  LOCKSTEP_TRY(place.generation, number_or(environment, "SLURM_RESTART_COUNT", 0));
  const uint64_t run = mix64(static_cast<uint64_t>(job) * 65537 + static_cast<uint64_t>(step));
  place.master_port = static_cast<int64_t>(kFirstPort + run % kPortCount);
  place.nonce = nonce_of(static_cast<uint64_t>(job), static_cast<uint64_t>(step),
                         static_cast<uint64_t>(place.generation));
  return checked(place);
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
  const auto tasks = number_or(environment, step_task_count_name(environment), 1);
  return in_step && tasks && tasks.value() > 1 ? Launcher::kSlurm : Launcher::kAlone;
}

Result<WorkerPlace> place_from(const Environment& environment, int64_t threads) {
  auto place = detect_launcher(environment) == Launcher::kTorchrun ? torchrun_place(environment)
                                                                   : slurm_place(environment);
  if (place) place->threads = threads;
  return place;
}

Environment worker_variables(Environment inherited, const WorkerPlace& place) {
  Environment& out = inherited;
  out["RANK"] = std::to_string(place.rank);
  out["LOCAL_RANK"] = std::to_string(place.local_rank);
  out["WORLD_SIZE"] = std::to_string(place.world_size);
  out["LOCAL_WORLD_SIZE"] = std::to_string(place.local_world_size);
  out["LOCKSTEP_GENERATION"] = std::to_string(place.generation);
  out["LOCKSTEP_NONCE"] = place.nonce;
  out["LOCKSTEP_STORE"] = place.store;
  out["LOCKSTEP_STORE_SERVER"] = place.hosts_store ? "rank0" : "none";
  if (!place.master_addr.empty()) {
    out["MASTER_ADDR"] = place.master_addr;
    out["MASTER_PORT"] = std::to_string(place.master_port);
  }
  if (!place.progress_page.empty()) out["LOCKSTEP_PROGRESS_PAGE"] = place.progress_page.string();
  if (!place.bind_address.empty()) out["LOCKSTEP_BIND_ADDRESS"] = place.bind_address;
  if (!place.bind_interface.empty())  // "=": this name, not all that begin with it
    out.try_emplace("NCCL_SOCKET_IFNAME", "=" + place.bind_interface);
  out.erase(net::kSecretVariable);
  // Fixed thread counts are part of a run's identity: MKL must not choose its own.
  out["OMP_NUM_THREADS"] = out["MKL_NUM_THREADS"] = std::to_string(place.threads);
  out["MKL_DYNAMIC"] = "FALSE";
  use_large_pages(out["GLIBC_TUNABLES"]);
  return inherited;
}

std::string nonce_of(uint64_t a, uint64_t b, uint64_t c) {
  constexpr size_t kDigits = 6;
  const std::string digits = hex64(mix64(mix64(mix64(a) ^ b) ^ c));
  return digits.substr(digits.size() - kDigits);
}

int64_t default_worker_count(const Environment& environment,
                             const std::filesystem::path& gpu_folder) {
#ifdef LOCKSTEP_CUDA
  if (const auto visible = environment.find("CUDA_VISIBLE_DEVICES"); visible != environment.end()) {
    if (visible->second.empty() || visible->second == "-1") return 1;
    return static_cast<int64_t>(split(visible->second, ',').size());
  }
  std::error_code error;
  const auto entries = std::filesystem::directory_iterator(gpu_folder, error);
  return error ? 1 : std::max<int64_t>(1, std::distance(begin(entries), end(entries)));
#else
  (void)environment, (void)gpu_folder;
  return 1;
#endif
}

}  // namespace lockstep::launcher
