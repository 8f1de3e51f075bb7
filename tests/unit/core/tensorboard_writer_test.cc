#include "core/train/tensorboard_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/hash.h"

namespace lockstep::core {
namespace {

class StoppedClock : public Clock {
 public:
  int64_t monotonic_ns() override { return 0; }
  int64_t unix_ns() override { return 1'700'000'000'250'000'000; }
  void sleep_ns(int64_t) override {}
};

uint64_t little_endian(std::string_view bytes) {
  uint64_t word = 0;
  for (size_t i = bytes.size(); i-- > 0;) word = word << 8 | static_cast<unsigned char>(bytes[i]);
  return word;
}

// The payloads of a file, after checking both CRCs of each record.
std::vector<std::string> payloads(std::string_view file) {
  std::vector<std::string> found;
  while (!file.empty()) {
    if (file.size() < 16) {
      ADD_FAILURE() << "a record of " << file.size() << " bytes";
      return found;
    }
    const uint64_t length = little_endian(file.substr(0, 8));
    EXPECT_EQ(little_endian(file.substr(8, 4)), masked_crc32c(file.substr(0, 8)));
    if (file.size() < 16 + length) {
      ADD_FAILURE() << "a record of " << length << " bytes is cut off";
      return found;
    }
    found.emplace_back(file.substr(12, length));
    EXPECT_EQ(little_endian(file.substr(12 + length, 4)), masked_crc32c(found.back()));
    file.remove_prefix(16 + length);
  }
  return found;
}

class TensorboardWriterTest : public testing::Test {
 protected:
  TensorboardWriterTest() {
    folder_ = testing::TempDir() + "lockstep_tensorboard_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    EXPECT_TRUE(remove_tree(files_, folder_).ok());
  }
  ~TensorboardWriterTest() override { EXPECT_TRUE(remove_tree(files_, folder_).ok()); }
  std::unique_ptr<TensorboardWriter> create() {
    auto writer = TensorboardWriter::create(files_, clock_, {folder_ / "tb", "node7", 42});
    EXPECT_TRUE(writer.ok());
    return std::move(writer).value();
  }
  std::string contents(const TensorboardWriter& writer) {
    return read_file(files_, writer.path()).value();
  }

  FileSystem& files_ = posix_file_system();
  StoppedClock clock_;
  std::filesystem::path folder_;
};

// RFC 3720 B.4 gives 0xe3069283 for "123456789"; the mask is TensorFlow's (lib/hash/crc32c.h).
TEST(MaskedCrc32c, OfAKnownText) {
  const uint32_t crc = 0xe3069283;
  EXPECT_EQ(masked_crc32c("123456789"), ((crc >> 15) | (crc << 17)) + 0xa282ead8);
}

TEST_F(TensorboardWriterTest, WritesFramedEvents) {
  auto writer = create();
  EXPECT_EQ(writer->path().filename(), "events.out.tfevents.1700000000.node7.42.0");
  ASSERT_TRUE(writer->add_scalars(300, {{"lr", 0.5}, {"loss", 2.0}}).ok());
  // Read while the writer is open: a killed process would leave exactly this.
  const auto events = payloads(contents(*writer));
  ASSERT_EQ(events.size(), 2u);
  const double time = 1'700'000'000.25;
  std::string wall(9, '\x09');
  std::memcpy(wall.data() + 1, &time, sizeof time);
  EXPECT_EQ(events[0], wall +
                           "\x1a\x0d"
                           "brain.Event:2");
  // Event.step = 300 (varint ac 02); Summary of two Values {tag, simple_value}.
  const std::string lr = std::string("\x0a\x02lr\x15") + std::string("\x00\x00\x00\x3f", 4);
  const std::string loss = std::string("\x0a\x04loss\x15") + std::string("\x00\x00\x00\x40", 4);
  EXPECT_EQ(events[1], wall + "\x10\xac\x02" + "\x2a\x18" + "\x0a\x09" + lr + "\x0a\x0b" + loss);
}

TEST_F(TensorboardWriterTest, ASecondStartMakesASecondFile) {
  auto first = create();
  auto second = create();
  EXPECT_EQ(second->path().filename(), "events.out.tfevents.1700000000.node7.42.1");
  EXPECT_EQ(payloads(contents(*first)).size(), 1u);
}

TEST_F(TensorboardWriterTest, ManyEventsStayWhole) {
  auto writer = create();
  for (int64_t step = 0; step < 500; ++step) {
    ASSERT_TRUE(writer->add_scalars(step * 1'000'000'007, {{"t", 1.0 / 3.0}}).ok());
  }
  EXPECT_EQ(payloads(contents(*writer)).size(), 501u);
}

}  // namespace
}  // namespace lockstep::core
