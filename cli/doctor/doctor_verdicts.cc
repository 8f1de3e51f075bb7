#include "cli/doctor/doctor_verdicts.h"

#include <algorithm>
#include <optional>

#include "base/number.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr double kSlowDisk = 100e6, kSlowSync_s = 2, kSlowMemory = 4e9;
constexpr int64_t kFewFiles = 4096, kTooFewFiles = 512;
constexpr int64_t kShmOfNccl = int64_t{64} << 20;  // of a rank with a GPU
constexpr double kTightShare = 0.8;                // of what is free
constexpr int64_t kStateBytes = 12;                // of a parameter: master, m, v
constexpr int64_t kOldestDriver = 580;             // that runs CUDA 13, with which builds are made

Verdict ok(const char* what, std::string found) { return {Level::kOk, what, std::move(found), ""}; }
Verdict warn(const char* what, std::string found, std::string advice) {
  return {Level::kWarn, what, std::move(found), std::move(advice)};
}
Verdict bad(const char* what, std::string found, std::string advice) {
  return {Level::kBad, what, std::move(found), std::move(advice)};
}

std::string size_text(int64_t bytes) {
  return bytes < 0 ? "unknown" : bytes_text(static_cast<uint64_t>(bytes));
}

Verdict judge_cpus(const DeviceFacts& d) {
  constexpr const char* kWhat = "cpus";
  const std::string found = text(d.cpus, " of the node's ", counted(d.cpus_of_node, "CPU"), ", on ",
                                 counted(d.cores, "core"));
  if (d.cores == 1 && d.cpus < d.cpus_of_node)
    return warn(kWhat, found + ", which all workers of this node would share",
                "under Slurm, give --cpus-per-task N to sbatch and to srun, or --cpu-bind=none to "
                "srun; otherwise check taskset and the CPUs of the container");
  return ok(kWhat, found);
}

// Why a worker would not compute on the GPUs that are here; nothing where it does.
std::optional<Verdict> judge_build(const DeviceFacts& d, const ComputeFacts& c, int64_t gpus,
                                   const std::string& found) {
  constexpr const char* kWhat = "devices";
  if (c.error.empty() && !c.cuda_build)
    return warn(
        kWhat, found + "; this build computes on the CPU",
        "install a torch with CUDA and its worker (docs/INSTALL.md), or build one (docs/CUDA.md)");
  if (c.cuda_devices >= gpus) return std::nullopt;
  const std::string driver = d.gpus.empty() ? "" : d.gpus.front().driver;
  const int64_t major = parse_number(driver.substr(0, driver.find('.'))).value_or(kOldestDriver);
  if (major < kOldestDriver)
    return warn(kWhat,
                text(found, ", which is older than ", kOldestDriver, ": LibTorch sees ",
                     counted(c.cuda_devices, "GPU")),
                text("CUDA 13 needs driver ", kOldestDriver, " or newer, or NVIDIA's cuda-compat"));
  if (c.error.empty())
    return warn(kWhat, text(found, "; LibTorch sees ", c.cuda_devices),
                "check CUDA_VISIBLE_DEVICES and the version of the driver");
  return std::nullopt;
}

Verdict judge_devices(const DeviceFacts& d, const ComputeFacts& c, const NodeNeeds& needs) {
  constexpr const char* kWhat = "devices";
  if (d.gpus_of_kernel == 0 && d.gpus.empty())
    return ok(kWhat, counted(d.cpus, "CPU") + ", no GPU");
  if (!d.has_nvidia_smi) {
    const std::string found = text(counted(d.gpus_of_kernel, "GPU"), " in /proc, no nvidia-smi");
    return judge_build(d, c, d.gpus_of_kernel, found)
        .value_or(warn(kWhat, found,
                       "put nvidia-smi on the PATH to have their memory and errors checked"));
  }
  if (!d.nvidia_smi_error.empty())
    return bad(kWhat, text(counted(d.gpus_of_kernel, "GPU"), " in /proc; ", d.nvidia_smi_error),
               "the driver does not answer; drain this node and reset it");
  const auto count = static_cast<int64_t>(d.gpus.size());
  if (count < d.gpus_of_kernel)
    return bad(kWhat, text(count, " of ", d.gpus_of_kernel, " GPUs answer"),
               "a GPU has fallen off the bus; drain this node and reset it");
  std::string found = text(count, " x ", d.gpus.front().name, ", driver ", d.gpus.front().driver);
  for (const GpuFacts& gpu : d.gpus) {
    if (gpu.ecc_errors > 0)
      return bad(kWhat,
                 text(found, "; a ", gpu.name, " has ",
                      counted(gpu.ecc_errors, "uncorrected memory error")),
                 "drain this node; its results cannot be trusted");
    if (gpu.name != d.gpus.front().name)
      return warn(kWhat, text(found, "; another is a ", gpu.name),
                  "ranks wait for the slowest GPU, and another model may compute other bits");
    if (needs.device_bytes > 0 && gpu.memory_bytes >= 0 && gpu.memory_bytes < needs.device_bytes)
      return bad(kWhat,
                 text(found, "; a rank's tensors take ", size_text(needs.device_bytes),
                      " and a GPU has ", size_text(gpu.memory_bytes)),
                 "see `lockstep plan CONFIG --device-memory` for what fits");
  }
  if (auto idle = judge_build(d, c, count, found)) return std::move(*idle);
  if (needs.ranks > count)
    return warn(kWhat, text(found, " for ", counted(needs.ranks, "rank")),
                "ranks that share a GPU are slow; lower --nproc-per-node");
  return ok(kWhat, found);
}

Verdict judge_compute(const ComputeFacts& c) {
  constexpr const char* kWhat = "gemm";
  if (!c.error.empty()) return bad(kWhat, c.error, "training needs a lockstep-worker that starts");
  return ok(kWhat, text(fixed(c.fp32_tflops, 3), " TFLOP/s in fp32, ", fixed(c.bf16_tflops, 3),
                        " in bf16, ", c.device,
                        c.cuda_devices > 0 ? "" : text(", ", counted(c.threads, "thread"))));
}

Verdict judge_memory(const MemoryFacts& m, const NodeNeeds& needs) {
  constexpr const char* kWhat = "memory";
  const std::string found =
      text(size_text(m.available_bytes), " available, copies at ", rate_text(m.copy_bytes_per_s));
  const int64_t needed = needs.host_bytes + needs.snapshot_bytes;
  const std::string need = text(found, "; ", counted(needs.ranks, "rank"),
                                needs.ranks == 1 ? " takes " : " take ", size_text(needed));
  if (needed > m.available_bytes && m.available_bytes >= 0)
    return bad(kWhat, need, "use fewer ranks a node, or more nodes; see `lockstep plan CONFIG`");
  if (needed > kTightShare * static_cast<double>(m.available_bytes) && m.available_bytes >= 0)
    return warn(kWhat, need, "little is left for the page cache and the libraries");
  if (m.copy_bytes_per_s >= 0 && m.copy_bytes_per_s < kSlowMemory)
    return warn(kWhat, found, "memory is slow; check what else runs on this node");
  return ok(kWhat, needed > 0 ? need : found);
}

Verdict judge_shared_memory(const NodeFacts& f, const NodeNeeds& needs) {
  constexpr const char* kWhat = "shm";
  const MemoryFacts& m = f.memory;
  if (needs.snapshot_bytes > 0 && m.snapshot_free_bytes < needs.snapshot_bytes)
    return bad(kWhat,
               text(m.snapshot_folder, " has ", size_text(m.snapshot_free_bytes),
                    " free, but snapshots take ", size_text(needs.snapshot_bytes)),
               "make it larger (containers: --shm-size), set checkpoint.memory_folder, or "
               "checkpoint.memory_interval = 0");
  const std::string found = text(size_text(m.shm_free_bytes), " free in /dev/shm");
  const int64_t nccl = kShmOfNccl * static_cast<int64_t>(f.devices.gpus.size());
  if (m.shm_free_bytes < nccl)
    return warn(kWhat, found,
                "NCCL needs about 64 MiB for each GPU; start containers with --shm-size=1g");
  return ok(kWhat, found);
}

Verdict judge_disk(const DiskFacts& d) {
  constexpr const char* kWhat = "disk";
  if (!d.error.empty())
    return bad(kWhat, d.error,
               "checkpoints cannot be written there; set another checkpoint.folder");
  const std::string found = text(rate_text(d.bytes_per_s()), " in ", d.folder, " (",
                                 size_text(d.written_bytes), ", fsync ", fixed(d.sync_s, 3), " s)");
  if (d.bytes_per_s() < kSlowDisk)
    return warn(kWhat, found,
                "saves will take long; raise checkpoint.interval or use a faster "
                "file system");
  if (d.sync_s > kSlowSync_s)
    return warn(kWhat, found, "fsync is slow; every save waits for it, but training does not");
  return ok(kWhat, found);
}

Verdict judge_space(const DiskFacts& d, const NodeNeeds& needs) {
  constexpr const char* kWhat = "space";
  if (d.free_bytes < 0) return bad(kWhat, text(d.folder, ": cannot tell the free space"), "");
  const std::string found = size_text(d.free_bytes) + " free";
  if (needs.checkpoint_bytes == 0) return ok(kWhat, found);
  const std::string need = text(found, ", checkpoints will take up to ",
                                size_text(needs.checkpoint_bytes), " (", needs.checkpoint_how, ")");
  constexpr const char* kAdvice =
      "free some space, lower checkpoint.keep_latest_k, or raise checkpoint.keep_every";
  if (d.free_bytes < needs.checkpoint_bytes) return bad(kWhat, need, kAdvice);
  if (kTightShare * static_cast<double>(d.free_bytes) < static_cast<double>(needs.checkpoint_bytes))
    return warn(kWhat, need, kAdvice);
  return ok(kWhat, need);
}

Verdict judge_limits(const LimitFacts& l) {
  constexpr const char* kWhat = "limits";
  const auto words = [](int64_t limit, const std::string& words_of_it) {
    return limit < 0 ? std::string("unlimited") : words_of_it;
  };
  const std::string found =
      text(words(l.open_files, std::to_string(l.open_files)), " open files, locked memory ",
           words(l.locked_bytes, size_text(l.locked_bytes)));
  const std::string raise = text("raise the hard limit (ulimit -Hn) to ", kFewFiles);
  const bool limited = l.open_files >= 0;
  if (limited && l.open_files < kTooFewFiles) return bad(kWhat, found, raise);
  if (limited && l.open_files < kFewFiles)
    return warn(kWhat, found, raise + ": hundreds of ranks, data sets of many shards");
  if (l.infiniband && l.locked_bytes >= 0)
    return warn(kWhat, found,
                "InfiniBand registers memory: ulimit -l unlimited (Slurm: "
                "PropagateResourceLimitsExcept=MEMLOCK)");
  return ok(kWhat, found);
}

Verdict judge_clock(bool synchronized) {
  if (synchronized) return ok("clock", "set by a time service");
  return warn("clock", "the kernel says that no time service sets it",
              "times in the logs and events of several nodes will not match; start chrony or ntpd");
}

Verdict judge_network(const NetworkFacts& n) {
  if (!n.error.empty())
    return bad("network", n.error, "name an interface or address of this node with --local-addr");
  return ok("network", text(n.interface.empty() ? "no interface" : n.interface, ", ", n.address,
                            ", which peers will use"));
}

Verdict judge_versions(const NodeFacts& f) {
  const VersionFacts& v = f.versions;
  std::string found =
      text("lockstep ", v.lockstep, ", Linux ", v.kernel, ", glibc ", v.glibc, ", HDF5 ", v.hdf5);
  if (f.compute.error.empty()) found += text(", LibTorch ", f.compute.torch);
  if (!f.compute.nccl.empty()) found += text(", NCCL ", f.compute.nccl);
  return ok("versions", found);
}

// Checkpoints that lie on the disk at once, the one being written with them.
int64_t checkpoints_at_once(const Config& config) {
  const Config::Checkpoint& c = config.checkpoint;
  const int64_t steps = config.training.steps;
  const int64_t all = c.interval > 0 ? steps / c.interval + 1 : 1;
  if (c.keep_latest_k == 0) return all + 1;
  const int64_t forever = c.keep_every > 0 ? steps / c.keep_every : 0;
  return std::min(all, c.keep_latest_k + forever) + 1 + (c.ephemeral_interval > 0 ? 1 : 0) +
         (c.keep_best ? 1 : 0);
}

}  // namespace

std::string rate_text(double bytes_per_s) {
  return bytes_per_s >= 1e9 ? fixed(bytes_per_s * 1e-9, 1) + " GB/s"
                            : fixed(bytes_per_s * 1e-6, 1) + " MB/s";
}

const char* level_name(Level level) {
  return level == Level::kOk ? "ok" : level == Level::kWarn ? "warn" : "bad";
}

std::vector<Verdict> judge(const NodeFacts& facts, const NodeNeeds& needs) {
  return {judge_devices(facts.devices, facts.compute, needs),
          judge_cpus(facts.devices),
          judge_compute(facts.compute),
          judge_memory(facts.memory, needs),
          judge_shared_memory(facts, needs),
          judge_disk(facts.disk),
          judge_space(facts.disk, needs),
          judge_limits(facts.limits),
          judge_network(facts.network),
          judge_clock(facts.clock_synchronized),
          judge_versions(facts)};
}

NodeNeeds needs_of(const Config& config, const layout::ModelSpec& spec, const layout::Ranks& ranks,
                   int64_t ranks_here) {
  const bool has_gpus = ranks.sizes == layout::WorkSizes::kGpu;
  NodeNeeds needs;
  needs.ranks = ranks_here;
  if (config.checkpoint.enable) {
    const int64_t one = kStateBytes * spec.parameter_count(), count = checkpoints_at_once(config);
    needs.checkpoint_bytes = one * count;
    needs.checkpoint_how = text(count, " x ", size_text(one), " at most");
  }
  const layout::MemoryPlan plan = layout::plan_memory(config, spec, ranks);
  int64_t host = has_gpus ? plan.offloaded_bytes : plan.peak_bytes;
  for (const layout::MemoryRow& row : plan.host) {
    if (row.what == layout::kSnapshotRow) {
      needs.snapshot_bytes = row.bytes * ranks_here;
    } else {
      host += row.bytes;
    }
  }
  needs.host_bytes = host * ranks_here;
  if (has_gpus) needs.device_bytes = plan.device_bytes();
  return needs;
}

}  // namespace lockstep::cli
