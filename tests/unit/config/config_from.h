#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file_system.h"
#include "config/config.h"
#include "tests/support/temp_dir.h"

namespace lockstep {

// What the flags give; no error is expected.
inline Config from_flags(const std::vector<std::string>& arguments) {
  auto parsed = parse_config("", arguments);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return parsed.ok() ? parsed.value().config : Config{};
}

// The message of the error that the flags give.
inline std::string flag_error(const std::vector<std::string>& arguments) {
  const auto parsed = parse_config("", arguments);
  if (parsed.ok()) return "no error";
  EXPECT_EQ(parsed.error().code, Code::kConfig);
  return parsed.error().message;
}
inline Result<ParsedConfig> from_toml(const test_support::TempDir& dir, const std::string& contents,
                                      const std::vector<std::string>& arguments = {}) {
  EXPECT_TRUE(publish_file(posix_file_system(), dir / "run.toml", contents).ok());
  return parse_config(dir / "run.toml", arguments);
}
// The message of the error that a file with these contents gives; it names the file and a line.
inline std::string toml_error(const std::string& contents) {
  test_support::TempDir dir;
  const auto parsed = from_toml(dir, contents);
  if (parsed.ok()) return "no error";
  EXPECT_EQ(parsed.error().code, Code::kConfig);
  EXPECT_THAT(parsed.error().message, testing::HasSubstr((dir / "run.toml:").string()));
  return parsed.error().message;
}

}  // namespace lockstep
