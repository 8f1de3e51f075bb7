// docs/CONFIG.md has one row for every key, and each row says what the table says.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file_system.h"
#include "base/text.h"
#include "config/config_field.h"

namespace lockstep {
namespace {

// In a Markdown table a bar inside a cell must be escaped.
std::string cell(const std::string& words) {
  std::string out;
  for (const char c : words) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string expected_row(const ConfigField& field) {
  const std::string value = value_text(Config{}, field);
  const std::string limits = limits_text(field);
  return text("| `", field.name(), "` | ", type_name(field), " | ",
              value.empty() ? "" : "`" + value + "`", " | ",
              field.bits == Bits::kMayChange ? "yes" : "", " | ", cell(field.help),
              limits.empty() ? "" : "; " + cell(limits), " |");
}

TEST(ConfigDocs, EveryKeyHasItsRow) {
  const auto page = read_file(posix_file_system(), LOCKSTEP_SOURCE_DIR "/docs/CONFIG.md");
  ASSERT_TRUE(page.ok()) << page.error().message;
  const std::vector<std::string> lines = split(page.value(), '\n');
  size_t rows = 0;
  for (const std::string& line : lines)
    if (line.starts_with("| `") && line.find(".") < line.find("` |")) ++rows;
  for (const ConfigField& field : config_fields()) {
    const std::string row = expected_row(field);
    EXPECT_NE(std::find(lines.begin(), lines.end(), row), lines.end()) << "missing row:\n" << row;
  }
  EXPECT_EQ(rows, config_fields().size()) << "docs/CONFIG.md has rows for keys that do not exist";
  for (const ConfigAlias& alias : config_aliases()) {
    const std::string row =
        text("| `--", alias.alias, "` | `", alias.name, "` | ", cell(alias.help), " |");
    EXPECT_NE(std::find(lines.begin(), lines.end(), row), lines.end()) << "missing row:\n" << row;
  }
}

}  // namespace
}  // namespace lockstep
