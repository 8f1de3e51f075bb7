// What a worker sets up before its first tensor. Without a GPU every test fails: none is skipped.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/device/devices.h"

namespace lockstep::core {
namespace {

class Gpu : public testing::Environment {
  void SetUp() override {
    setenv(kCublasWorkspace[0], kCublasWorkspace[1], 1);
    ASSERT_GT(local_device().count(), 0) << "these tests need a GPU";
    local_device().set_up(local_device().of_rank(0));
  }
};
[[maybe_unused]] testing::Environment* const environment =
    testing::AddGlobalTestEnvironment(new Gpu);

}  // namespace
}  // namespace lockstep::core
