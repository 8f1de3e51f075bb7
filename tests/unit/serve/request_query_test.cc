// The words of a request.
#include "cli/serve/request_query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace lockstep::cli {
namespace {

using testing::ElementsAre;

TEST(RequestQuery, NamesAndValues) {
  const RequestQuery query("run=a&run=b%2Fc&field=loss+x&empty=&bare&run=%e2%82%ac&x=a=b");
  EXPECT_THAT(query.all("run"), ElementsAre("a", "b/c", "\xe2\x82\xac"));
  EXPECT_EQ(query.first("field"), "loss x");
  EXPECT_EQ(query.first("x"), "a=b");
  for (const char* none : {"empty", "bare", "missing"}) EXPECT_EQ(query.first(none), "") << none;
  EXPECT_THAT(RequestQuery("").all("run"), ElementsAre());
}

TEST(RequestQuery, WhatIsNoCodeStaysAsItIs) {
  EXPECT_EQ(RequestQuery("a=%").first("a"), "%");
  EXPECT_EQ(RequestQuery("a=%4").first("a"), "%4");
  EXPECT_EQ(RequestQuery("a=%zz%-1%41").first("a"), "%zz%-1A");
  EXPECT_EQ(RequestQuery("a=%2541").first("a"), "%41") << "decoded once";
}

TEST(RequestQuery, NumbersHaveLimits) {
  const RequestQuery query("a=2.5&b=x&c=1e999&d=nan&e=7 &f=");
  EXPECT_EQ(query.number("a", 0, 0, 10), 2.5);
  EXPECT_EQ(query.number("none", 4, 0, 1), 4);
  EXPECT_EQ(query.number("f", 4, 0, 1), 4);
  for (const char* key : {"b", "c", "d", "e"})
    EXPECT_FALSE(query.number(key, 0, 0, std::numeric_limits<double>::infinity())) << key;
  EXPECT_FALSE(query.number("a", 0, 3, 10));
  EXPECT_FALSE(query.number("a", 0, 0, 2));
}

}  // namespace
}  // namespace lockstep::cli
