#include "core/optim/validations.h"

#include <gtest/gtest.h>

namespace lockstep::core {
namespace {

TEST(Validations, OnlyALowerLossIsAGain) {
  Validations v;
  EXPECT_FALSE(v.exhausted(1)) << "before the first";
  EXPECT_TRUE(v.add(5, 3.0));
  EXPECT_FALSE(v.add(10, 3.0)) << "as good is not better";
  EXPECT_FALSE(v.add(15, std::nan("")));
  EXPECT_EQ(v.without_gain, 2);
  EXPECT_FALSE(v.exhausted(3));
  EXPECT_TRUE(v.exhausted(2));
  EXPECT_FALSE(v.exhausted(0)) << "no patience is asked for";
  EXPECT_TRUE(v.add(20, 2.5));
  EXPECT_EQ(v.without_gain, 0);
  EXPECT_EQ(v.best_step, 20);
  EXPECT_EQ(v.best_loss, 2.5);
  EXPECT_EQ(v.step, 20);
}

TEST(Validations, NoneThatIsANumberIsTheBest) {
  Validations v;
  EXPECT_FALSE(v.add(5, std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(v.add(10, std::nan("")));
  EXPECT_EQ(v.best_step, -1);
  EXPECT_TRUE(v.exhausted(2));
  EXPECT_TRUE(v.add(15, 9.0));
}

}  // namespace
}  // namespace lockstep::core
