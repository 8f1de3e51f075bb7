// The fault injector itself, and publish_file under every fault it can make.
#include "tests/support/faulty_file_system.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

using test_support::Fault;
using test_support::FaultyFileSystem;
using test_support::Op;
using test_support::TempDir;

TEST(FaultyFileSystem, CountsCallsAndFailsTheKth) {
  TempDir dir;
  FaultyFileSystem disk(posix_file_system(),
                        {.op = Op::kWrite, .at_call = 2, .fault = Fault::kIoError});
  auto file = disk.create(dir / "f").value();
  EXPECT_TRUE(file->write_at(as_bytes("ab"), 0).ok());
  const Result<void> second = file->write_at(as_bytes("cd"), 2);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kIo);
  EXPECT_NE(second.error().message.find("injected I/O error at call 2"), std::string::npos);
  EXPECT_TRUE(file->write_at(as_bytes("ef"), 2).ok());
  EXPECT_EQ(disk.calls(Op::kWrite), 3);
  EXPECT_EQ(disk.calls(Op::kAny), 4);
  EXPECT_EQ(read_file(disk, dir / "f").value(), "abef");
}

TEST(FaultyFileSystem, ShortWriteDoesHalfAndStaysBrokenWhenAsked) {
  TempDir dir;
  FaultyFileSystem disk(posix_file_system());
  auto file = disk.create(dir / "f").value();
  disk.set_plan({.op = Op::kWrite, .at_call = 1, .fault = Fault::kShortWrite, .and_after = true});
  EXPECT_EQ(file->write_at(as_bytes("12345678"), 0).error().code, Code::kIo);
  EXPECT_FALSE(file->write_at({}, 0).ok());
  EXPECT_EQ(read_file(posix_file_system(), dir / "f").value(), "1234");
}

TEST(FaultyFileSystem, ByteLimitIsAFullDisk) {
  TempDir dir;
  FaultyFileSystem disk(posix_file_system(), {.byte_limit = 10});
  auto file = disk.create(dir / "f").value();
  EXPECT_TRUE(file->write_at(as_bytes("12345678"), 0).ok());
  EXPECT_EQ(disk.free_bytes(dir.path()).value(), 2);
  EXPECT_EQ(file->write_at(as_bytes("abcd"), 8).error().code, Code::kNoSpace);
  EXPECT_EQ(read_file(posix_file_system(), dir / "f").value(), "12345678ab");
  EXPECT_EQ(disk.written_bytes(), 10);
}

TEST(FaultyFileSystem, DelaysEachCall) {
  TempDir dir;
  FaultyFileSystem disk(posix_file_system(), {.delay_ns = 3'000'000});
  const int64_t before_ns = system_clock().monotonic_ns();
  ASSERT_TRUE(publish_file(disk, dir / "f", "x").ok());
  EXPECT_GE(system_clock().monotonic_ns() - before_ns, 3'000'000 * disk.calls(Op::kAny));
}

TEST(PublishFile, FaultAtAnyCallLeavesOldOrNewAndSaysSo) {
  TempDir dir;
  FaultyFileSystem disk(posix_file_system());
  ASSERT_TRUE(publish_file(disk, dir / "f", "new").ok());
  const int64_t calls = disk.calls(Op::kAny);
  ASSERT_EQ(calls, 5);  // create, write, sync, rename, sync of the directory
  for (const Fault fault : {Fault::kIoError, Fault::kNoSpace, Fault::kShortWrite}) {
    for (int64_t k = 1; k <= calls; ++k) {
      disk.set_plan({});
      ASSERT_TRUE(publish_file(disk, dir / "f", "old").ok());
      disk.set_plan({.op = Op::kAny, .at_call = k, .fault = fault});
      const Result<void> published = publish_file(disk, dir / "f", "new");
      ASSERT_FALSE(published.ok()) << "call " << k;
      EXPECT_EQ(published.error().code, fault == Fault::kNoSpace ? Code::kNoSpace : Code::kIo);
      const std::string now = read_file(posix_file_system(), dir / "f").value();
      // Only the last step, the directory's fsync, comes after the rename.
      EXPECT_EQ(now, k == calls ? "new" : "old") << "call " << k;
      EXPECT_FALSE(disk.exists(dir / "f.tmp"));
    }
  }
}

TEST(PublishFileDeathTest, KillAtAnyCallLeavesOldOrNew) {
  TempDir dir;
  for (int64_t k = 1; k <= 5; ++k) {
    for (const Fault fault : {Fault::kKill, Fault::kShortWriteKill}) {
      ASSERT_TRUE(publish_file(posix_file_system(), dir / "f", "old").ok());
      FaultyFileSystem disk(posix_file_system(), {.at_call = k, .fault = fault});
      EXPECT_EXIT((void)publish_file(disk, dir / "f", "new").ok(), testing::KilledBySignal(SIGKILL),
                  "");
      const std::string now = read_file(posix_file_system(), dir / "f").value();
      EXPECT_TRUE(now == "old" || now == "new") << now;
    }
  }
}

TEST(FaultyFileSystem, HoldsACallUntilTheNextPlanAndCutsOnlyTheFirstWrite) {
  TempDir dir;
  FaultyFileSystem disk(
      posix_file_system(),
      {.op = Op::kWrite, .at_call = 1, .fault = Fault::kShortWrite, .and_after = true});
  const auto file = disk.create(dir / "f").value();
  EXPECT_FALSE(file->write_at(as_bytes("abcd"), 0).ok());
  EXPECT_FALSE(file->write_at(as_bytes("efgh"), 2).ok());
  EXPECT_EQ(file->size_bytes().value(), 2);
  disk.set_plan({.op = Op::kSync, .at_call = 1, .fault = Fault::kHold});
  std::atomic<bool> synced = false;
  std::thread thread([&] { synced = file->sync().ok(); });
  while (disk.calls(Op::kSync) == 0) std::this_thread::yield();
  EXPECT_FALSE(synced);
  disk.set_plan({});
  thread.join();
  EXPECT_TRUE(synced);
}

TEST(MakeDurableDirectories, SyncsTheParentOfEachOneThatWasMissing) {
  TempDir dir;
  FaultyFileSystem disk(posix_file_system());
  ASSERT_TRUE(make_durable_directories(disk, dir / "a/b/c").ok());
  EXPECT_EQ(disk.calls(Op::kSyncDirectory), 3);
  disk.set_plan({});
  ASSERT_TRUE(make_durable_directories(disk, dir / "a/b/c").ok());
  EXPECT_EQ(disk.calls(Op::kSyncDirectory), 1);
}

}  // namespace
}  // namespace lockstep
