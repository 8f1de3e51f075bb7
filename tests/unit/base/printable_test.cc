#include "base/printable.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Printable, WhatATerminalObeysIsShownInstead) {
  EXPECT_EQ(printable("a\x1b[31mred\a\b\x7f"), "a\\x1b[31mred\\x07\\x08\\x7f");
  EXPECT_EQ(printable(std::string_view("nul\0", 4)), "nul\\x00");
  EXPECT_EQ(printable("csi \xc2\x9b"
                      "2J"),
            "csi \\x9b2J");
}

TEST(Printable, TextStaysAsItIs) {
  const std::string text = "line\n\tMünchen 10 \xc2\xb5s \xf0\x9f\x98\x80, 100 %";
  EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable("over\rwritten"), "over\\x0dwritten");
  EXPECT_EQ(printable("over\rwritten", "\r"), "over\rwritten");
  EXPECT_EQ(printable("\xff\xc2"), "\xff\xc2") << "no UTF-8: no terminal takes it for a command";
}

TEST(Printable, AControlMayBeCutInTwo) {
  EXPECT_EQ(unfinished_control("abc\xc2"), 1u);
  EXPECT_EQ(unfinished_control("abc"), 0u);
  EXPECT_EQ(unfinished_control(""), 0u);
}

}  // namespace
}  // namespace lockstep
