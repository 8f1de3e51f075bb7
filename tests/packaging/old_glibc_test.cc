// What stands in for glibc's functions does what they do.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <set>

#define sigabbrev_np our_sigabbrev_np
#define arc4random our_arc4random
#define __libc_single_threaded our_single_threaded
#include "packaging/wheel/old_glibc.cc"
#undef sigabbrev_np

TEST(OldGlibc, SignalsHaveGlibcsNames) {
  for (int signal = -1; signal <= NSIG; ++signal) {
    const char* name = ::sigabbrev_np(signal);
    if (name == nullptr)
      EXPECT_EQ(our_sigabbrev_np(signal), nullptr) << signal;
    else
      EXPECT_STREQ(our_sigabbrev_np(signal), name) << signal;
  }
}

TEST(OldGlibc, RandomNumbersDiffer) {
  std::set<uint32_t> drawn;
  for (int i = 0; i < 64; ++i) drawn.insert(our_arc4random());
  EXPECT_GT(drawn.size(), 32u);
}
