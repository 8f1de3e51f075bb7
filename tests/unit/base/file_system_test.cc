#include "base/file_system.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "base/hash.h"
#include "base/text.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

using test_support::TempDir;

FileSystem& disk() { return posix_file_system(); }

TEST(PosixFileSystem, WritesReadsTruncates) {
  TempDir dir;
  auto file = disk().create(dir / "a").value();
  ASSERT_TRUE(file->write_at(as_bytes("hello world"), 0).ok());
  ASSERT_TRUE(file->write_at(as_bytes("W"), 6).ok());
  ASSERT_TRUE(file->write_at({}, 100).ok());
  file->start_writeback(0, 11);
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(file->size_bytes().value(), 11);
  ASSERT_TRUE(file->truncate(8).ok());
  EXPECT_EQ(read_file(disk(), dir / "a").value(), "hello Wo");

  auto again = disk().open(dir / "a").value();
  std::vector<std::byte> bytes(2);
  ASSERT_TRUE(again->read_at(bytes, 6).ok());
  EXPECT_EQ(bytes[0], std::byte{'W'});
}

TEST(PosixFileSystem, ReadingBeyondTheEndIsCorruptAndSaysWhere) {
  TempDir dir;
  auto file = disk().create(dir / "short").value();
  ASSERT_TRUE(file->write_at(as_bytes("12345"), 0).ok());
  std::vector<std::byte> bytes(8);
  const Result<void> read = file->read_at(bytes, 0);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Code::kCorrupt);
  EXPECT_NE(read.error().message.find((dir / "short").string() + ": the file ends at 5, 3 bytes"),
            std::string::npos)
      << read.error().message;
}

TEST(PosixFileSystem, MissingIsNotFoundAndNamed) {
  TempDir dir;
  for (const auto& error :
       {disk().open(dir / "no").error(), read_file(disk(), dir / "no").error(),
        disk().list(dir / "no").error(), disk().remove(dir / "no").error(),
        disk().rename(dir / "no", dir / "x").error(), disk().sync_directory(dir / "no").error(),
        disk().create(dir / "no/file").error(), disk().free_bytes(dir / "no").error()}) {
    EXPECT_EQ(error.code, Code::kNotFound) << error.message;
    EXPECT_NE(error.message.find((dir / "no").string()), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("No such file"), std::string::npos) << error.message;
  }
}

TEST(PosixFileSystem, FullDeviceIsNoSpace) {
  if (!disk().exists("/dev/full")) FAIL() << "this system has no /dev/full";
  auto file = disk().open("/dev/full").value();
  const Result<void> written = file->write_at(as_bytes("x"), 0);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Code::kNoSpace);
  EXPECT_EQ(written.error().message,
            "disk full: /dev/full: 1 B more wanted (write: No space left on device)");
}

TEST(PosixFileSystem, ALimitOnFileSizesIsNoSpaceAndNamed) {
  TempDir dir;
  auto file = disk().create(dir / "file").value();
  const auto before_signal = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const Result<void> written = file->write_at(as_bytes("x"), 4096);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, before_signal);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Code::kNoSpace);
  EXPECT_EQ(written.error().message,
            text("beyond a limit on file sizes (`ulimit -f`): ", (dir / "file").string(),
                 ": 1 B more wanted (write: File too large)"));
}

TEST(PosixFileSystem, FailedSyncStaysFailed) {
  auto file = disk().open("/dev/full").value();  // a character device has no fsync
  ASSERT_FALSE(file->sync().ok());
  EXPECT_EQ(file->sync().error().code, Code::kIo);
}

TEST(PosixFileSystem, ReadOnlyFileOpensForReading) {
  TempDir dir;
  ASSERT_TRUE(publish_file(disk(), dir / "ro", "x").ok());
  ASSERT_EQ(::chmod((dir / "ro").c_str(), 0400), 0);
  EXPECT_EQ(read_file(disk(), dir / "ro").value(), "x");
  EXPECT_EQ(read_file(disk(), "/proc/self/statm").ok(), true);
}

// Somebody has put it where we are about to write.
TEST(PosixFileSystem, WhatALinkLeadsToIsNotWritten) {
  using Write = Result<void> (*)(const std::filesystem::path& name);
  const Write writes[] = {
      [](const auto& name) { return disk().create(name).value()->write_at(as_bytes("ours"), 0); },
      [](const auto& name) {
        return disk().create_direct(name).value()->write_at(as_bytes("ours"), 0);
      },
      [](const auto& name) {
        std::filesystem::path final_name = name;
        return publish_file(disk(), final_name.replace_extension(), "ours");
      }};
  for (const Write write : writes)
    for (const bool symbolic : {true, false}) {
      TempDir dir;
      ASSERT_TRUE(publish_file(disk(), dir / "theirs", "theirs").ok());
      const auto name = dir / "name.tmp";
      ASSERT_EQ((symbolic ? ::symlink : ::link)((dir / "theirs").c_str(), name.c_str()), 0);
      const Result<void> written = write(name);
      ASSERT_TRUE(written.ok()) << written.error().message;
      EXPECT_EQ(read_file(disk(), dir / "theirs").value(), "theirs");
      const auto found = disk().exists(name) ? name : dir / "name";
      EXPECT_FALSE(disk().is_link(found));
      EXPECT_EQ(read_file(disk(), found).value(), "ours");
    }
  TempDir dir;
  ASSERT_EQ(::symlink((dir / "nowhere").c_str(), (dir / "a").c_str()), 0);
  ASSERT_TRUE(disk().create(dir / "a").ok());
  EXPECT_FALSE(disk().exists(dir / "nowhere"));
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  ASSERT_TRUE(disk().create(dir / "pipe").ok());
  EXPECT_TRUE(std::filesystem::is_regular_file(dir / "pipe"));
}

TEST(PosixFileSystem, DirectoriesListRenameRemove) {
  TempDir dir;
  ASSERT_TRUE(disk().make_directories(dir / "a/b/c").ok());
  ASSERT_TRUE(disk().make_directories(dir / "a/b/c").ok());
  for (const char* name : {"z", "y", "x"}) ASSERT_TRUE(disk().create(dir / "a" / name).ok());
  EXPECT_EQ(disk().list(dir / "a").value(), (std::vector<std::string>{"b", "x", "y", "z"}));
  ASSERT_TRUE(disk().rename(dir / "a/x", dir / "a/w").ok());
  EXPECT_TRUE(disk().exists(dir / "a/w"));
  EXPECT_FALSE(disk().exists(dir / "a/x"));
  EXPECT_FALSE(disk().remove(dir / "a").ok());
  ASSERT_TRUE(disk().sync_directory(dir / "a").ok());
  EXPECT_GT(disk().free_bytes(dir.path()).value(), 0);
  ASSERT_TRUE(remove_tree(disk(), dir / "a").ok());
  EXPECT_FALSE(disk().exists(dir / "a"));
  EXPECT_TRUE(remove_tree(disk(), dir / "a").ok());
}

TEST(PosixFileSystem, RemoveTreeDoesNotFollowLinks) {
  TempDir dir;
  ASSERT_TRUE(disk().make_directories(dir / "keep").ok());
  ASSERT_TRUE(publish_file(disk(), dir / "keep/file", "kept").ok());
  ASSERT_TRUE(disk().make_directories(dir / "gone").ok());
  ASSERT_EQ(::symlink((dir / "keep").c_str(), (dir / "gone/link").c_str()), 0);
  ASSERT_TRUE(remove_tree(disk(), dir / "gone").ok());
  EXPECT_EQ(read_file(disk(), dir / "keep/file").value(), "kept");
}

TEST(PosixFileSystem, RemoveTreeDoesNotFollowALinkThatItMayNotRemove) {
  TempDir dir;
  ASSERT_TRUE(disk().make_directories(dir / "keep").ok());
  ASSERT_TRUE(publish_file(disk(), dir / "keep/file", "kept").ok());
  ASSERT_EQ(::symlink((dir / "keep").c_str(), (dir / "link").c_str()), 0);
  test_support::FaultyFileSystem refusing(
      disk(),
      {.op = test_support::Op::kRemove, .at_call = 1, .fault = test_support::Fault::kIoError});
  EXPECT_FALSE(remove_tree(refusing, dir / "link").ok());
  EXPECT_EQ(read_file(disk(), dir / "keep/file").value(), "kept");
}

TEST(PosixFileSystem, APrivateFileIsItsOwnersAlone) {
  TempDir dir;
  const auto open_to_all = std::filesystem::perms::group_read | std::filesystem::perms::others_read;
  ASSERT_TRUE(publish_file(disk(), dir / "f", "open").ok());
  EXPECT_NE(std::filesystem::status(dir / "f").permissions() & open_to_all,
            std::filesystem::perms::none);
  ASSERT_TRUE(publish_file(disk(), dir / "f.tmp", "of a crash").ok());
  ASSERT_TRUE(publish_file(disk(), dir / "f", "secret", Readers::kOwner).ok());
  EXPECT_EQ(std::filesystem::status(dir / "f").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(read_file(disk(), dir / "f").value(), "secret");
}

TEST(PosixFileSystem, PublishReplacesAndLeavesNoTemporary) {
  TempDir dir;
  ASSERT_TRUE(publish_file(disk(), dir / "f", "one").ok());
  ASSERT_TRUE(publish_file(disk(), dir / "f", "two, longer").ok());
  ASSERT_TRUE(publish_file(disk(), dir / "empty", "").ok());
  EXPECT_EQ(read_file(disk(), dir / "f").value(), "two, longer");
  EXPECT_EQ(read_file(disk(), dir / "empty").value(), "");
  EXPECT_EQ(disk().list(dir.path()).value(), (std::vector<std::string>{"empty", "f"}));
}

}  // namespace
}  // namespace lockstep
