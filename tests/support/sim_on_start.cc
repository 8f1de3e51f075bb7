// Linked into a worker, it has the process compute on one simulated device from its start. The
// device's seed is LOCKSTEP_SIM_SEED, and another one for each rank.
#include <cstdlib>
#include <memory>
#include <string>

#include "core/device/sim_world.h"
#include "core/kernels/sim/sim_kernels.h"

namespace lockstep::core {
namespace {

uint64_t number(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : 0;
}

// The main thread trains. The world is never destroyed: neither is the process's work.
struct OnStart {
  OnStart() {
    use_sim();
    world = new SimWorld({.seed = 1000 * number("LOCKSTEP_SIM_SEED") + number("RANK")});
  }
  SimWorld* world;
} on_start;

}  // namespace
}  // namespace lockstep::core
