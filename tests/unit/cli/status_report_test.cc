#include "cli/status/status_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/status/status_metrics.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(StatusReport, WhatCountersOfHardwareSayIsShown) {
  RunStatus status;
  status.state = status.membership.state = "running";
  EXPECT_THAT(status_text(status), Not(HasSubstr("health")));
  EXPECT_THAT(status_metrics(status), HasSubstr("\nlockstep_health_findings 0\n"));
  status.membership.health = {"n1: it is hot", "n2: it fails"};
  EXPECT_THAT(status_text(status), HasSubstr("\nhealth: n1: it is hot\nhealth: n2: it fails\n"));
  EXPECT_EQ(nlohmann::json::parse(status_json(status, true))["health"],
            nlohmann::json(status.membership.health));
  EXPECT_THAT(status_metrics(status), HasSubstr("\nlockstep_health_findings 2\n"));
}

}  // namespace
}  // namespace lockstep::cli
