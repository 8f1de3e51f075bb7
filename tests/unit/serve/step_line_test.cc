// Lines of metrics.jsonl: what is read of them, and which are damaged.
#include "cli/serve/step_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/json.h"

namespace lockstep::cli {
namespace {

// As core/train/run_record.cc writes it.
constexpr std::string_view kLine =
    R"({"step":7,"loss":3.65334,"loss_hex":"0x1.d3a0p+1","grad_norm":1.25,"lr":0.0003,)"
    R"("tokens":8192,"step_time_s":0.5,"data_wait_s":0.001,"world_size":3,"generation":2,)"
    R"("wire_bytes":{"gather":{"all":1,"other_nodes":0},"note":"a } in a string \" and so on"},)"
    R"("max_memory_bytes":1073741824,"phases_s":{"forward":0.2,"backward":0.3},"t":1700000000.5,)"
    R"("validation_loss":3.5})";

TEST(StepLine, ReadsWhatATrainerWrites) {
  auto line = parse_step_line(kLine);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->step, 7);
  EXPECT_EQ(line->tokens, 8192);
  EXPECT_EQ(line->generation, 2);
  EXPECT_EQ(line->world_size, 3);
  EXPECT_EQ(line->unix_s, 1700000000.5);
  EXPECT_FALSE(line->skipped);
  EXPECT_FLOAT_EQ(line->at(Field::kLoss), 3.65334F);
  EXPECT_FLOAT_EQ(line->at(Field::kValidationLoss), 3.5F);
  EXPECT_FLOAT_EQ(line->at(Field::kGradNorm), 1.25F);
  EXPECT_FLOAT_EQ(line->at(Field::kLearningRate), 0.0003F);
  EXPECT_FLOAT_EQ(line->at(Field::kTokensPerSecond), 16384);
  EXPECT_FLOAT_EQ(line->at(Field::kMemory), 1073741824);
  EXPECT_FLOAT_EQ(line->at(Field::kForward), 0.2F);
  EXPECT_FLOAT_EQ(line->at(Field::kBackward), 0.3F);
  EXPECT_TRUE(std::isnan(line->at(Field::kUpdate))) << "was not logged";
}

TEST(StepLine, ALossThatIsNotFiniteIsAGapAndSpacesAreAllowed) {
  auto line = parse_step_line(R"( { "step" : 3 , "loss" : null, "skipped": "not finite" } )");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->step, 3);
  EXPECT_TRUE(line->skipped);
  EXPECT_TRUE(std::isnan(line->at(Field::kLoss)));
}

// A line that was torn ends early: no beginning of one is a line.
TEST(StepLine, EachBeginningOfALineIsDamaged) {
  for (size_t size = 0; size < kLine.size(); ++size)
    EXPECT_FALSE(parse_step_line(kLine.substr(0, size))) << size;
}

// Under ASan: the bytes end where the line does.
TEST(StepLine, AnyByteMayBeAnotherOne) {
  std::vector<char> bytes(kLine.begin(), kLine.end());
  size_t damaged = 0;
  for (char& byte : bytes) {
    const char before = byte;
    for (const char wrong :
         {'{', '}', '[', ']', '"', '\\', ',', ':', '-', '9', 'e', '\0', '\xff'}) {
      byte = wrong;
      damaged += parse_step_line({bytes.data(), bytes.size()}) ? 0 : 1;
    }
    byte = before;
  }
  EXPECT_GT(damaged, bytes.size()) << "of 13 for each byte";
  EXPECT_TRUE(parse_step_line({bytes.data(), bytes.size()}));
}

TEST(StepLine, WhatIsNoStepIsDamaged) {
  const std::string deep(kMaxJsonLevels + 1, '[');
  for (const std::string& words :
       {std::string(R"({"step":1})"), std::string(R"({"loss":1})"),
        std::string(R"({"step":-1,"loss":1})"), std::string(R"({"step":1.5,"loss":1})"),
        std::string(R"({"step":1e300,"loss":1})"), std::string(R"({"step":null,"loss":1})"),
        std::string(R"({"step":1,"loss":1}})"), std::string(R"({"step":1,"loss":1} {"step":2})"),
        std::string(R"({"step":1,"loss":1,"a":[1,2}})"), std::string(R"({"step":1,"loss":nan})"),
        std::string("{\"step\":1,\"loss\":1,\"a\":\"b\x01\"}"), std::string("[1,2]"),
        std::string("step 1"), R"({"step":1,"loss":1,"a":)" + deep})
    EXPECT_FALSE(parse_step_line(words)) << words;
}

TEST(StepLine, FieldsHaveNames) {
  for (size_t i = 0; i < kFieldCount; ++i)
    EXPECT_EQ(field_of_name(kFields[i].name), static_cast<Field>(i)) << kFields[i].name;
  EXPECT_FALSE(field_of_name("none"));
  EXPECT_EQ(info_of(Field::kOther).name, "other");
}

}  // namespace
}  // namespace lockstep::cli
