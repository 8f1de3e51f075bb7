#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/config.h"

namespace lockstep {

// What the flags give; no error is expected.
inline Config from_flags(const std::vector<std::string>& arguments) {
  auto parsed = parse_config("", arguments);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return parsed.ok() ? parsed.value().config : Config{};
}

}  // namespace lockstep
