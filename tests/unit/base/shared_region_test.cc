#include "base/shared_region.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <new>

namespace lockstep {
namespace {

TEST(SharedRegion, AnotherProcessReadsAndWritesIt) {
  auto mine = SharedRegion::create(size_t{1} << 32);  // far more than is written
  ASSERT_TRUE(mine.ok()) << mine.error().message;
  std::byte* end = mine->data() + mine->size() - 1;
  EXPECT_EQ(*end, std::byte{0});
  const std::string address = mine->address();
  EXPECT_LE(address.size(), SharedRegion::kMaxAddress);
  const pid_t child = fork();
  if (child == 0) {
    auto theirs = SharedRegion::open(address);
    if (!theirs.ok() || theirs->size() != size_t{1} << 32 || !theirs->creator_lives()) _exit(1);
    theirs->data()[theirs->size() - 1] = std::byte{7};
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(*end, std::byte{7});
}

TEST(SharedRegion, SaysWhenItsCreatorHasDiedAndKeepsItsBytes) {
  int ends[2], go[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto mine = SharedRegion::create(4096);
    const std::string address = mine->address() + '\0';
    mine->data()[0] = std::byte{9};
    if (write(ends[1], address.data(), address.size()) < 0) _exit(1);
    char byte;
    if (read(go[0], &byte, 1) < 0) _exit(1);
    _exit(0);
  }
  char address[SharedRegion::kMaxAddress] = {};
  ASSERT_GT(read(ends[0], address, sizeof(address) - 1), 0);
  auto theirs = SharedRegion::open(address);
  ASSERT_TRUE(theirs.ok()) << theirs.error().message;
  EXPECT_TRUE(theirs->creator_lives());
  ASSERT_EQ(write(go[1], "x", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(theirs->creator_lives());
  EXPECT_EQ(theirs->data()[0], std::byte{9});
  EXPECT_FALSE(SharedRegion::open(address).ok());  // nobody is there any more
}

TEST(SharedRegion, ABadAddressIsAnError) {
  for (const char* address : {"", "x", "1:2", "0:0:0", "999999999:3:5"})
    EXPECT_FALSE(SharedRegion::open(address).ok()) << address;
  // A file of this process that is not what the address says.
  EXPECT_FALSE(SharedRegion::open(std::to_string(getpid()) + ":0:1").ok());
}

TEST(SharedRegion, AWaiterIsWokenOrGivesUp) {
  auto region = SharedRegion::create(4096);
  ASSERT_TRUE(region.ok());
  auto* word = new (region->data()) std::atomic<uint32_t>(3);
  wait_while(*word, 2, 60'000'000'000);  // it is not: no wait
  wait_while(*word, 3, 1'000'000);       // nobody wakes it
  const pid_t child = fork();
  if (child == 0) {
    while (word->load() == 3) wait_while(*word, 3, 60'000'000'000);
    _exit(0);
  }
  word->store(4);
  wake_all(*word);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep
