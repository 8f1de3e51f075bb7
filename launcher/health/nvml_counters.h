// What NVML says of the GPUs that this process can see, whoever uses them: where Slurm gives a job
// some of a node's GPUs only, these are all that it sees.
//
// An Xid is the driver's word for what went wrong with a GPU. Those of failing hardware are told
// from those that a program causes; the latter (13, 31, 43, 45, …) are no counters here: the worker
// ends by them. Source: NVIDIA's "Xid Errors", docs.nvidia.com/deploy/xid-errors, and what its
// health checks drain a node for, docs.nvidia.com/health-validation/reference/checks/xid.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "launcher/health/health_rules.h"
#include "launcher/health/nvml_calls.h"

namespace lockstep::launcher::health {

// Borrows the library. Thread: one.
class NvmlCounters {
 public:
  explicit NvmlCounters(Nvml& nvml);

  std::vector<Counter> read();

 private:
  struct Gpu {
    uint32_t index = 0;
    NvmlDevice device = nullptr;
    std::map<uint64_t, int64_t> xids;  // by number: so many came
  };
  void add_memory(const Gpu& gpu, std::vector<Counter>& counters);
  void add_slowdowns(const Gpu& gpu, std::vector<Counter>& counters);
  void take_xids();

  Nvml& nvml_;
  std::vector<Gpu> gpus_;
};

}  // namespace lockstep::launcher::health
