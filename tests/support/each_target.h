// Highway's functions choose their instruction set when they are called; tests want each of them.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

namespace lockstep {

// Calls `body` with each instruction set that this CPU has; afterwards the widest is used again.
template <typename Body>
void on_each_target(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace lockstep
