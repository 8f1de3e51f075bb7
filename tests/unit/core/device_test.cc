#include "core/device/device.h"

#include "tests/support/device_checks.h"

namespace lockstep::core {
namespace {

TEST(CpuDevice, DoesWhatADeviceDoes) { check_device(device_of(at::kCPU), at::kCPU); }

TEST(CpuDevice, IsTheHost) {
  const Device& cpu = device_of(at::kCPU);
  EXPECT_EQ(cpu.type(), at::kCPU);
  EXPECT_EQ(cpu.count(), 0);
  EXPECT_EQ(cpu.name(), "");
  EXPECT_FALSE(cpu.memory().has_value());
  const at::Tensor host = cpu.host_tensor({4}, at::kFloat);
  EXPECT_EQ(cpu.copy_of(host, at::kCPU).data_ptr(), host.data_ptr()) << "nothing is copied";
}

TEST(Devices, ThisProcessComputesOnWhatItSees) {
  EXPECT_EQ(&local_device(), local_device().count() > 0 ? &built_device() : &device_of(at::kCPU));
  EXPECT_EQ(&device_of(local_device().of_rank(3)), &local_device());
}

}  // namespace
}  // namespace lockstep::core
