#include "core/sharding/schedule.h"

#include <gtest/gtest.h>

#include "core/comm/interruption.h"
#include "tests/unit/core/whole_model.h"

namespace lockstep::core {
namespace {

// A stage that counts what has run, and ends the generation while run number `last` is under way.
class Counted : public Stage {
 public:
  Counted(std::unique_ptr<Stage> stage, int& ran, int last)
      : stage_(std::move(stage)), ran_(ran), last_(last) {}
  at::Tensor forward(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                     bool keep) override {
    count();
    return stage_->forward(units, x, slot, keep);
  }
  at::Tensor backward(UnitParts units, const at::Tensor& dy, const SlotInput& slot) override {
    count();
    return stage_->backward(units, dy, slot);
  }

 private:
  void count() {
    if (++ran_ == last_) interrupt();
  }
  std::unique_ptr<Stage> stage_;
  int& ran_;
  int last_;
};

// Runs that were made in a step of three slots, and how it ended. What ddp keeps gathered is
// there, and one rank waits for nobody: no collective could notice.
std::pair<int, Result<void>> step_interrupted_in(int last) {
  constexpr int64_t kSlots = 3;
  WholeModel model(families().front(), options_of(at::kFloat));
  model.strategy.keep_gathered = true;
  model.strategy.map.slots = kSlots;
  int ran = 0;
  for (auto& stage : model.stages.stages)
    stage = std::make_unique<Counted>(std::move(stage), ran, last);
  Schedule schedule(model.parts, model.stages, model.strategy, 0, model.watch);
  const auto run = [&]() -> Result<void> {
    for (int64_t round = 0; round < kSlots; ++round) {
      LOCKSTEP_RETURN_IF_ERROR(schedule.train_slot(some_slot(), round));
    }
    return schedule.finish_step();
  };
  const Result<void> done = run();
  clear_interruption();
  return {ran, done};
}

TEST(Schedule, AGenerationThatIsOverEndsBetweenTwoLayers) {
  const auto [all, whole] = step_interrupted_in(-1);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  ASSERT_EQ(all, 3 * 2 * 3);  // slots, directions, stages
  for (int last = 1; last < all; ++last) {
    const auto [ran, done] = step_interrupted_in(last);
    EXPECT_EQ(ran, last);
    ASSERT_FALSE(done.ok()) << last;
    EXPECT_EQ(done.error().code, Code::kPeerLost) << last;
  }
}

}  // namespace
}  // namespace lockstep::core
