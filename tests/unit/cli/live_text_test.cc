// How `lockstep status --watch` draws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "cli/status/status_report.h"

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What a terminal with `rows` rows shows after those bytes: enough of one for LiveText.
std::vector<std::string> terminal(const std::string& bytes) {
  std::vector<std::string> screen(1);
  size_t row = 0;
  for (size_t i = 0; i < bytes.size();) {
    if (bytes[i] == '\n') {
      if (++row == screen.size()) screen.emplace_back();
      ++i;
    } else if (bytes[i] == '\x1b') {
      const size_t end = bytes.find_first_of("hlFKJ", i);
      const std::string number = bytes.substr(i + 2, end - i - 2);
      if (bytes[end] == 'F') row -= static_cast<size_t>(std::stoi(number));
      if (bytes[end] == 'J') screen.resize(row + 1), screen[row].clear();
      i = end + 1;
    } else {
      const size_t end = bytes.find_first_of("\n\x1b", i);
      const std::string words = bytes.substr(i, end - i);
      const bool erased = bytes.compare(end, 3, "\x1b[K") == 0;
      screen[row] = erased ? words : words + screen[row].substr(words.size());
      i = end;
    }
  }
  return screen;
}

TEST(LiveText, ReplacesWhatItShowed) {
  std::ostringstream out;
  LiveText live(out);
  live.show("a long first line\nsecond\nthird\n", {24, 80});
  EXPECT_THAT(terminal(out.str()), ElementsAre("a long first line", "second", "third", ""));
  live.show("short\nB\n", {24, 80});
  EXPECT_THAT(terminal(out.str()), ElementsAre("short", "B", ""));
  EXPECT_THAT(out.str(), testing::Not(HasSubstr("\x1b[2J"))) << "clearing first would flicker";
}

TEST(LiveText, CutsWhatDoesNotFit) {
  std::ostringstream out;
  LiveText live(out);
  std::string words;
  for (int i = 0; i < 30; ++i) words += text("line number ", i, "\n");
  for (int times = 0; times < 2; ++times) live.show(words, {10, 9});
  EXPECT_THAT(terminal(out.str()),
              ElementsAre("line num", "line num", "line num", "line num", "line num", "... 22 m",
                          "line num", "line num", "line num", ""));
}

TEST(LiveText, WithoutATerminalThereAreNoControlBytes) {
  std::ostringstream out;
  LiveText live(out);
  live.show("a\n", {});
  live.show("b\n", {});
  EXPECT_EQ(out.str(), "a\n\nb\n\n");
}

}  // namespace
}  // namespace lockstep::cli
