#include "base/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/file_system.h"
#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

using test_support::TempDir;
using testing::HasSubstr;

TEST(HostMemory, SomeIsAvailable) { EXPECT_GT(available_memory_bytes(), 1 << 20); }

TEST(HostMemory, ALimitOfACgroupCounts) {
  const TempDir root;
  const auto write = [&](const std::string& name, const std::string& contents) {
    std::filesystem::create_directories((root / name).parent_path());
    std::ofstream(root / name) << contents;
  };
  write("proc/meminfo", "MemTotal: 900 kB\nMemAvailable: 800 kB\n");
  EXPECT_EQ(available_memory_bytes(root.path()), 800 * 1024);
  write("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  EXPECT_EQ(available_memory_bytes(root.path()), 800 * 1024) << "none of its folders is there";
  const std::string job = "sys/fs/cgroup/slurm/job_7/";
  write(job + "memory.max", "500000\n");
  write(job + "memory.current", "300000\n");
  write(job + "step_0/memory.max", "max\n");
  write(job + "step_0/memory.current", "300000\n");
  EXPECT_EQ(available_memory_bytes(root.path()), 200000);
  write(job + "memory.stat", "anon 5\ninactive_file 100000\n");
  EXPECT_EQ(available_memory_bytes(root.path()), 300000);
  write("proc/self/cgroup", "4:memory:/job_7\n3:cpu,cpuacct:/\n");
  write("sys/fs/cgroup/memory/job_7/memory.limit_in_bytes", "100000");
  write("sys/fs/cgroup/memory/job_7/memory.usage_in_bytes", "100001");
  EXPECT_EQ(available_memory_bytes(root.path()), 0);
}

TEST(HostMemory, TheKernelCountsWhomItEndedForMemory) {
  const TempDir root;
  EXPECT_EQ(processes_ended_for_memory(root.path()), 0);
  std::filesystem::create_directory(root / "proc");
  std::ofstream(root / "proc" / "vmstat") << "oom_kill_disable 1\noom_kill 7\npgfault 9\n";
  EXPECT_EQ(processes_ended_for_memory(root.path()), 7);
}

TEST(HostMemory, ALineOfTheKernelInBytes) {
  const TempDir dir;
  std::ofstream(dir / "status") << "VmRSS:\t    20 kB\nRssAnon:\t   3 kB\n";
  EXPECT_EQ(kernel_bytes(dir / "status", "RssAnon"), 3 * 1024);
  EXPECT_EQ(kernel_bytes(dir / "status", "VmHWM"), -1);
  EXPECT_EQ(kernel_bytes(dir / "none", "VmRSS"), -1);
}

TEST(HostMemory, AnOwnedDirectoryIsClosedToOthers) {
  const TempDir dir;
  ASSERT_TRUE(make_owned_directory(dir / "mine").ok());
  struct stat status {};
  ASSERT_EQ(::stat((dir / "mine").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_TRUE(make_owned_directory(dir / "mine").ok()) << "a second rank finds it";
  EXPECT_EQ(make_owned_directory(dir / "no" / "parent").error().code, Code::kIo);
}

TEST(HostMemory, WhatOthersCanReadOrPlacedIsRefused) {
  const TempDir dir;
  ASSERT_TRUE(make_owned_directory(dir / "mine").ok());
  std::filesystem::create_directory_symlink(dir / "mine", dir / "link");
  std::filesystem::create_directory(dir / "open");
  std::filesystem::permissions(dir / "open", std::filesystem::perms(0755));
  ASSERT_TRUE(posix_file_system().create(dir / "file").ok());
  for (const char* name : {"link", "open", "file"}) {
    const auto made = make_owned_directory(dir / name);
    ASSERT_FALSE(made.ok()) << name;
    EXPECT_EQ(made.error().code, Code::kConfig);
    EXPECT_THAT(made.error().message, HasSubstr(name));
  }
}

TEST(HostMemory, IdentityIsTheDirectorysNotTheNames) {
  const TempDir dir;
  for (const char* name : {"a", "b"}) std::filesystem::create_directory(dir / name);
  std::filesystem::create_directory_symlink(dir / "a", dir / "also_a");
  const std::string a = directory_identity(dir / "a").value();
  EXPECT_EQ(directory_identity(dir / "also_a").value(), a);
  EXPECT_NE(directory_identity(dir / "b").value(), a);
  EXPECT_FALSE(directory_identity(dir / "none").ok());
}

TEST(HostMemory, RandomNumbersDiffer) {
  EXPECT_NE(random_number().value(), random_number().value());
}

TEST(HostMemory, AllocatedFilesHaveTheirSizeAndZeros) {
  const TempDir dir;
  auto file = posix_file_system().create(dir / "a").value();
  ASSERT_TRUE(file->allocate(10000).ok());
  EXPECT_EQ(file->size_bytes().value(), 10000);
  struct stat status {};
  ASSERT_EQ(::stat((dir / "a").c_str(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, 10000) << "its space is taken";
  std::byte last{1};
  ASSERT_TRUE(file->read_at({&last, 1}, 9999).ok());
  EXPECT_EQ(last, std::byte{0});
}

}  // namespace
}  // namespace lockstep
