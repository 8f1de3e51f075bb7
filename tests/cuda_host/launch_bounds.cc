#include "tests/cuda_host/launch_bounds.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/cuda_host/emulator.h"

namespace lockstep::cuda_host {
namespace {

class CheckBounds : public testing::Environment {
 public:
  void TearDown() override {
    const std::map<std::string, int> bounds = bounds_of_kernels();
    for (const auto& [kernel, record] : records()) {
      if (kernel.starts_with("lockstep::cuda_host::")) continue;  // a test's own
      const auto bound = bounds.find(kernel);
      if (bound == bounds.end()) {
        ADD_FAILURE() << kernel << " is not in tests/gpu/ptxas.txt: tools/ptxas_table --update";
      } else {
        EXPECT_LE(record.most_threads, bound->second) << kernel << " has these __launch_bounds__";
      }
    }
  }
};
const testing::Environment* const kCheckBounds = testing::AddGlobalTestEnvironment(new CheckBounds);

}  // namespace

// Lines of "threads shared registers … name", and comments.
std::map<std::string, int> bounds_of_kernels() {
  const char* const root = std::getenv("LOCKSTEP_SOURCE_DIR");
  std::ifstream table(std::string(root == nullptr ? "." : root) + "/tests/gpu/ptxas.txt");
  std::map<std::string, int> bounds;
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    int threads = 0;
    std::string others, name;
    if (line.starts_with('#') || !(fields >> threads >> others >> others)) continue;
    std::getline(fields >> std::ws, name);
    bounds[name] = threads;
  }
  return bounds;
}

}  // namespace lockstep::cuda_host
