// Device memory as a save reads it (core/device/block_copies.h), on the simulated device.
#include "core/device/block_copies.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <thread>

#include "base/text.h"
#include "core/device/sim_device.h"
#include "tests/support/seed.h"

namespace lockstep::core {
namespace {

constexpr size_t kBufferBytes = 1024;
const at::Device kDevice{kSim, 0};

// Tensors that fill several blocks, share one, or end in the middle of one; and one without
// elements.
class Memory {
 public:
  Memory() {
    int64_t first = 0;
    for (const int64_t elements : {300, 1, 0, 3, 256, 255, 900}) {
      const at::Tensor host = sim_device().host_tensor({elements}, at::kFloat);
      host.copy_(at::arange(first, first + elements, at::TensorOptions(at::kFloat)));
      tensors_.push_back(sim_device().copy_of(host, kDevice));
      first += elements;
      want_.push_back(host.clone());
    }
  }
  std::vector<std::span<const std::byte>> ranges() const {
    std::vector<std::span<const std::byte>> all;
    for (const at::Tensor& t : tensors_)
      all.emplace_back(static_cast<const std::byte*>(t.data_ptr()), t.nbytes());
    return all;
  }
  void change() {
    for (at::Tensor& t : tensors_) t.zero_();
  }
  // "" or what is wrong with what a reader was given, all in order.
  std::string wrong(const std::vector<std::vector<std::byte>>& taken) const {
    for (size_t i = 0; i < want_.size(); ++i) {
      const size_t bytes = want_[i].nbytes();
      if (taken[i].size() != bytes) return text("tensor ", i, " has ", taken[i].size(), " bytes");
      if (bytes > 0 && std::memcmp(taken[i].data(), want_[i].data_ptr(), bytes) != 0)
        return text("tensor ", i);
    }
    return "";
  }
  size_t count() const { return tensors_.size(); }

 private:
  std::vector<at::Tensor> tensors_, want_;
};

// Parts as they come, each behind the one before it.
struct Taker {
  explicit Taker(size_t ranges) : taken(ranges) {}
  Result<void> operator()(const BlockCopies::Part& part) {
    EXPECT_EQ(part.offset, taken[part.range].size());
    EXPECT_LE(part.bytes.size(), kBufferBytes);
    taken[part.range].insert(taken[part.range].end(), part.bytes.begin(), part.bytes.end());
    return {};
  }
  std::vector<std::vector<std::byte>> taken;
};

TEST(BlockCopies, BringWhatWasThereAlthoughTheMemoryChangesUnderThem) {
  const uint64_t first = test_support::seed_or(1);
  for (uint64_t seed = first; seed < first + 100; ++seed) {
    SimWorld world({.seed = seed});
    Memory memory;
    BlockCopies copies(sim_device(), memory.ranges(), kBufferBytes);
    for (int pass = 0; pass < 2; ++pass) {
      Taker taker(memory.count());
      int said = 0;
      copies.freeze();
      const auto done = copies.read(std::ref(taker), [&] {
        ++said;
        copies.thaw();
        if (pass > 0) memory.change();
      });
      ASSERT_TRUE(done.ok()) << done.error().message;
      EXPECT_EQ(said, 1);
      EXPECT_EQ(memory.wrong(taker.taken), "") << "seed " << seed << " pass " << pass;
    }
  }
}

TEST(BlockCopies, AThreadBesideTheRankReadsThem) {
  const uint64_t first = test_support::seed_or(1);
  for (uint64_t seed = first; seed < first + 20; ++seed) {
    SimWorld world({.seed = seed});
    Memory memory;
    BlockCopies copies(sim_device(), memory.ranges(), kBufferBytes);
    Taker taker(memory.count());
    std::promise<void> given;
    copies.freeze();
    std::thread reader(
        [&] { EXPECT_TRUE(copies.read(std::ref(taker), [&] { given.set_value(); }).ok()); });
    given.get_future().wait();
    copies.thaw();
    memory.change();
    sim_device().current_stream()->synchronize();
    reader.join();
    EXPECT_EQ(memory.wrong(taker.taken), "") << "seed " << seed;
  }
}

TEST(BlockCopies, AReaderThatFailsEndsThemAndTheNextOneReadsAll) {
  SimWorld world({.seed = 7});
  Memory memory;
  BlockCopies copies(sim_device(), memory.ranges(), kBufferBytes);
  for (const int fails_at : {0, 2, 5}) {
    int said = 0, parts = 0;
    copies.freeze();
    const auto done = copies.read(
        [&](const BlockCopies::Part&) -> Result<void> {
          if (parts++ == fails_at) return Error{Code::kIo, "full"};
          return {};
        },
        [&] { ++said; });
    copies.thaw();
    EXPECT_EQ(done.error().message, "full");
    EXPECT_EQ(said, 1);
    EXPECT_EQ(parts, fails_at + 1);
  }
  Taker taker(memory.count());
  copies.freeze();
  ASSERT_TRUE(copies.read(std::ref(taker), [] {}).ok());
  EXPECT_EQ(memory.wrong(taker.taken), "");
}

TEST(BlockCopies, ADeviceThatFailsIsAnError) {
  SimWorld world({.seed = 1});
  Memory memory;
  BlockCopies copies(sim_device(), memory.ranges(), kBufferBytes);
  int said = 0;
  copies.freeze();
  world.break_off("broken");
  const auto done =
      copies.read([](const BlockCopies::Part&) { return Result<void>(); }, [&] { ++said; });
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "copying from the device: broken");
  EXPECT_EQ(said, 1);
}

TEST(BlockCopies, OfNothingEndAtOnce) {
  SimWorld world({.seed = 1});
  BlockCopies copies(sim_device(), {}, kBufferBytes);
  int said = 0;
  copies.freeze();
  EXPECT_TRUE(
      copies.read([](const BlockCopies::Part&) { return Result<void>(); }, [&] { ++said; }).ok());
  EXPECT_EQ(said, 1);
  copies.thaw();
}

}  // namespace
}  // namespace lockstep::core
