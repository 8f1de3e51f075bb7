// What every kind of device does (core/device/device.h).
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "core/device/devices.h"

namespace lockstep::core {

// Copies by `kind` to and from `device`, the current one, in the order of events and streams.
inline void check_device(const Device& kind, at::Device device) {
  EXPECT_EQ(&device_of(device), &kind);
  EXPECT_EQ(kind.type(), device.type());
  const int64_t n = 1 << 16;
  const at::Tensor there = kind.host_tensor({n}, at::kLong);
  there.copy_(at::arange(n, at::kLong));
  const auto current = kind.current_stream(), other = kind.new_stream();
  const auto before = current->mark_time();
  const at::Tensor on_device = kind.copy_of(there, device);
  EXPECT_EQ(on_device.device().type(), device.type());
  const at::Tensor twice = on_device * 2;
  const auto done = current->record();
  other->wait_for(*done);
  const auto behind = other->record();
  other->synchronize();
  EXPECT_TRUE(behind->reached());
  EXPECT_TRUE(done->reached()) << "the other stream did not wait for it";
  const at::Tensor beside = kind.host_tensor({n}, at::kLong);
  other->copy_to_host(beside.data_ptr(), twice.data_ptr(), beside.nbytes());
  other->record()->wait();
  EXPECT_TRUE(at::equal(beside, there * 2));
  const at::Tensor back = kind.host_tensor({n}, at::kLong);
  back.copy_(twice, /*non_blocking=*/true);
  current->synchronize();
  EXPECT_TRUE(at::equal(back, there * 2));
  EXPECT_EQ(before == nullptr, device.is_cpu()) << "the CPU's time is the host's";
  if (before != nullptr) {
    const auto after = current->mark_time();
    current->synchronize();
    EXPECT_TRUE(before->reached());
    EXPECT_TRUE(after->reached());
    EXPECT_GT(after->seconds_since(*before), 0);
  }
  const c10::DataPtr memory = kind.allocate(4096);
  EXPECT_NE(memory.get(), nullptr);
  EXPECT_EQ(memory.device().type(), device.type());
}

}  // namespace lockstep::core
