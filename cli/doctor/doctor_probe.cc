#include "cli/doctor/doctor_probe.h"

#include <gnu/libc-version.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <thread>

#include "base/aligned_bytes.h"
#include "base/host_memory.h"
#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "checkpoint/shard_file/shard_file_writer.h"
#include "cli/shared/bounded_run.h"
#include "cli/shared/version.h"
#include "launcher/net/endpoint.h"

namespace lockstep::cli {
namespace {

using std::filesystem::path;

constexpr size_t kWriteBytes = size_t{4} << 20, kCopyBytes = size_t{64} << 20;
constexpr int kCopyRounds = 5;

std::string kernel_line(const path& file) {
  const auto contents = read_stream(file);
  if (!contents.ok()) return "unknown";
  return contents.value().substr(0, contents.value().find('\n'));
}

int64_t entries(FileSystem& file_system, const path& folder) {
  if (!file_system.exists(folder)) return 0;
  const auto names = file_system.list(folder);
  return names.ok() ? static_cast<int64_t>(names.value().size()) : 0;
}

// The folder itself or the nearest one above it that is there.
path existing(FileSystem& file_system, path folder) {
  folder = std::filesystem::absolute(folder);
  while (folder.has_relative_path() && !file_system.exists(folder)) folder = folder.parent_path();
  return folder;
}

int64_t free_in(FileSystem& file_system, const path& folder) {
  const auto free = file_system.free_bytes(folder);
  return free.ok() ? free.value() : -1;
}

path program_on_path(FileSystem& file_system, const std::string& name) {
  const Environment environment = own_environment();
  const auto found = environment.find("PATH");
  for (const std::string& folder : split(found == environment.end() ? "" : found->second, ':'))
    if (!folder.empty() && file_system.exists(path(folder) / name)) return path(folder) / name;
  return {};
}

// The CPUs that this process may use, their cores, and those of the node.
void probe_cpus(DeviceFacts& facts) {
  facts.cpus_of_node = ::sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return;
  facts.cpus = CPU_COUNT(&cpus);
  std::set<std::string> cores;  // each said by all of its CPUs alike: "0,64"
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &cpus)) continue;
    const std::string core =
        kernel_line(text("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    cores.insert(core == "unknown" ? std::to_string(cpu) : core);
  }
  facts.cores = static_cast<int64_t>(cores.size());
}

DeviceFacts probe_devices(FileSystem& file_system, const ProbeOptions& options) {
  DeviceFacts facts;
  probe_cpus(facts);
  facts.gpus_of_kernel = entries(file_system, "/proc/driver/nvidia/gpus");
  const path nvidia_smi = program_on_path(file_system, "nvidia-smi");
  facts.has_nvidia_smi = !nvidia_smi.empty();
  if (!facts.has_nvidia_smi) return facts;
  const auto lines = output_of(
      nvidia_smi,
      {"--query-gpu=name,memory.total,driver_version,ecc.errors.uncorrected.volatile.total",
       "--format=csv,noheader,nounits"},
      options.program_s);
  const auto gpus = lines.ok() ? parse_nvidia_smi(lines.value()) : lines.error();
  if (gpus.ok()) {
    facts.gpus = gpus.value();
  } else {
    facts.nvidia_smi_error = gpus.error().message;
  }
  return facts;
}

ComputeFacts probe_compute(const ProbeOptions& options) {
  ComputeFacts facts;
  if (!options.worker_program.ok()) {
    facts.error = options.worker_program.error().message;
    return facts;
  }
  const auto json =
      output_of(options.worker_program.value(),
                {"probe", text("--training.threads=", options.threads)}, options.program_s);
  const auto parsed = json.ok() ? parse_worker_probe(json.value()) : json.error();
  if (parsed.ok()) return parsed.value();
  facts.error = parsed.error().message;
  return facts;
}

// Of all CPUs together; the best of a few rounds, the first one meets fresh memory.
double copy_bytes_per_s(Clock& clock, int64_t cpus) {
  struct Buffers {
    AlignedBytes from{kCopyBytes}, to{kCopyBytes};
  };
  std::vector<Buffers> buffers(static_cast<size_t>(std::max<int64_t>(1, cpus)));
  double best_s = 0;
  for (int round = 0; round <= kCopyRounds; ++round) {
    const double start = clock.monotonic_s();
    std::vector<std::jthread> threads;
    for (Buffers& mine : buffers)
      threads.emplace_back([&mine, round] {
        if (round == 0) std::memset(mine.from.data(), 1, kCopyBytes);
        std::memcpy(mine.to.data(), mine.from.data(), kCopyBytes);
      });
    threads.clear();  // joins
    const double seconds = clock.monotonic_s() - start;
    if (round == 1 || (round > 1 && seconds < best_s)) best_s = seconds;
  }
  return 2.0 * static_cast<double>(kCopyBytes * buffers.size()) / best_s;
}

MemoryFacts probe_memory(FileSystem& file_system, Clock& clock, const ProbeOptions& options,
                         int64_t cpus) {
  MemoryFacts facts;
  // Not more than a quarter of what is free.
  const int64_t pair = 2 * static_cast<int64_t>(kCopyBytes);
  facts.available_bytes = available_memory_bytes();
  const int64_t room = facts.available_bytes < 0 ? cpus : facts.available_bytes / (4 * pair);
  if (room > 0) facts.copy_bytes_per_s = copy_bytes_per_s(clock, std::min(cpus, room));
  facts.snapshot_folder = options.memory_folder.string();
  facts.snapshot_free_bytes = free_in(file_system, existing(file_system, options.memory_folder));
  facts.shm_free_bytes = free_in(file_system, "/dev/shm");
  return facts;
}

LimitFacts probe_limits(FileSystem& file_system) {
  LimitFacts facts;
  rlimit limit{};
  const auto number = [](rlim_t value) {
    return value == RLIM_INFINITY ? -1 : static_cast<int64_t>(value);
  };
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.open_files = number(limit.rlim_max);
  }
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.locked_bytes = number(limit.rlim_cur);
  facts.infiniband = entries(file_system, "/sys/class/infiniband") > 0;
  return facts;
}

bool clock_is_kept() {
  timex state{};
  return ntp_adjtime(&state) != TIME_ERROR;
}

}  // namespace

DiskFacts probe_disk(FileSystem& file_system, Clock& clock, const ProbeOptions& options) {
  DiskFacts facts;
  const path folder = existing(file_system, options.checkpoint_folder);
  facts.folder = folder.string();
  facts.free_bytes = free_in(file_system, folder);
  AlignedBytes block(kWriteBytes);
  for (size_t i = 0; i < kWriteBytes; i += sizeof(size_t)) {
    const size_t word = i * 0x9e3779b97f4a7c15ULL;  // nothing that a disk would compress
    std::memcpy(block.data() + i, &word, sizeof word);
  }
  const path name = folder / text(".lockstep_doctor_", ::getpid());
  const auto write = [&]() -> Result<void> {
    LOCKSTEP_TRY(const auto file, file_system.create_direct(name));
    LOCKSTEP_RETURN_IF_ERROR(file_system.remove(name));  // gone with us, whatever ends us
    const double start = clock.monotonic_s();
    while (facts.written_bytes < options.disk_bytes &&
           clock.monotonic_s() - start < options.disk_s) {
      LOCKSTEP_RETURN_IF_ERROR(file->write_at(block.first(kWriteBytes), facts.written_bytes));
      facts.written_bytes += static_cast<int64_t>(kWriteBytes);
    }
    const double written = clock.monotonic_s();
    LOCKSTEP_RETURN_IF_ERROR(file->sync());
    facts.write_s = written - start;
    facts.sync_s = clock.monotonic_s() - written;
    return {};
  };
  if (const auto done = write(); !done.ok()) facts.error = done.error().message;
  return facts;
}

NetworkFacts probe_network(const ProbeOptions& options) {
  std::optional<launcher::net::Endpoint> toward;  // nobody yet where nodes meet in a folder
  if (auto fixed = launcher::net::parse_endpoint(options.rendezvous);
      fixed.ok() && !options.rendezvous.starts_with("file:"))
    toward = std::move(fixed).value();
  const auto local = launcher::net::choose_local_address(options.local_address, toward);
  if (!local.ok()) return {.error = local.error().message, .interface = "", .address = ""};
  return {.error = "", .interface = local.value().interface, .address = local.value().address};
}

NodeFacts probe_node(FileSystem& file_system, Clock& clock, const ProbeOptions& options) {
  NodeFacts facts;
  facts.node = kernel_line("/proc/sys/kernel/hostname");
  facts.devices = probe_devices(file_system, options);
  facts.compute = probe_compute(options);
  facts.memory = probe_memory(file_system, clock, options, facts.devices.cpus);
  facts.disk = probe_disk(file_system, clock, options);
  facts.limits = probe_limits(file_system);
  facts.network = probe_network(options);
  facts.clock_synchronized = clock_is_kept();
  facts.versions = {kVersion, kernel_line("/proc/sys/kernel/osrelease"), gnu_get_libc_version(),
                    checkpoint::hdf5_version()};
  return facts;
}

Result<std::vector<GpuFacts>> parse_nvidia_smi(std::string_view lines) {
  std::vector<GpuFacts> gpus;
  for (const std::string& line : split(lines, '\n')) {
    if (line.empty()) continue;
    std::vector<std::string> cells = split(line, ',');
    for (std::string& cell : cells) cell.erase(0, cell.find_first_not_of(' '));
    if (cells.size() != 4) return Error{Code::kCorrupt, "nvidia-smi says \"" + line + "\""};
    GpuFacts gpu{.name = cells[0], .driver = cells[2]};
    const int64_t mebibytes = parse_number(cells[1]).value_or(-1);  // "[N/A]": not a number
    gpu.memory_bytes = mebibytes < 0 ? -1 : mebibytes << 20;
    gpu.ecc_errors = parse_number(cells[3]).value_or(-1);
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

Result<ComputeFacts> parse_worker_probe(std::string_view words) {
  const auto json = parse_json(words, /*allow_exceptions=*/false);
  ComputeFacts facts;
  try {
    facts.device = json.at("device").get<std::string>();
    facts.torch = json.at("torch").get<std::string>();
    facts.nccl = json.at("nccl").get<std::string>();
    facts.cuda_devices = json.at("cuda_devices").get<int64_t>();
    facts.threads = json.at("threads").get<int64_t>();
    facts.cuda_build = json.at("cuda_build").get<bool>();
    facts.fp32_tflops = json.at("fp32_tflops").get<double>();
    facts.bf16_tflops = json.at("bf16_tflops").get<double>();
  } catch (const nlohmann::json::exception& e) {
    return Error{Code::kCorrupt, text("cannot parse the output of lockstep-worker: ", e.what())};
  }
  return facts;
}

}  // namespace lockstep::cli
