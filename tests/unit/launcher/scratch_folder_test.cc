#include "launcher/host/scratch_folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "base/file_system.h"

namespace lockstep::launcher {
namespace {

using std::filesystem::path;

// In a temporary folder of its own: other tests make such folders meanwhile.
class Scratch : public testing::Test {
 protected:
  Scratch() { EXPECT_EQ(::setenv("TMPDIR", temporary.c_str(), 1), 0); }
  ~Scratch() override {
    if (before.empty())
      ::unsetenv("TMPDIR");
    else
      ::setenv("TMPDIR", before.c_str(), 1);
  }

  // A process that has a folder with a file and a link out of it. Returns once they are there.
  pid_t other(path& where) {
    int pipe[2];
    EXPECT_EQ(::pipe(pipe), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      const ScratchFolder folder = ScratchFolder::create().value();
      std::ofstream(folder.path() / "file") << "words";
      std::filesystem::create_directory_symlink(outside, folder.path() / "link");
      const std::string name = folder.path().string();
      ::write(pipe[1], name.data(), name.size()) > 0 ? ::pause() : 0;
      ::_exit(1);
    }
    char name[4096] = {};
    EXPECT_GT(::read(pipe[0], name, sizeof(name) - 1), 0);
    ::close(pipe[0]);
    ::close(pipe[1]);
    where = name;
    return pid;
  }
  static void kill(pid_t pid) {
    ::kill(pid, SIGKILL);
    EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
  }

  const std::string before = [] {
    const char* set = std::getenv("TMPDIR");
    return std::string(set ? set : "");
  }();
  const ScratchFolder own = ScratchFolder::create().value();
  const path temporary = [&] {
    std::filesystem::create_directory(own.path() / "tmp");
    return own.path() / "tmp";
  }();
  const path outside = [&] {
    std::filesystem::create_directory(own.path() / "outside");
    std::ofstream(own.path() / "outside/theirs") << "words";
    return own.path() / "outside";
  }();
};

TEST_F(Scratch, IsForThisUserAloneAndGoesWithItsOwner) {
  path made;
  {
    const ScratchFolder folder = ScratchFolder::create().value();
    made = folder.path();
    EXPECT_EQ(std::filesystem::status(made).permissions(), std::filesystem::perms::owner_all);
    std::ofstream(made / "file") << "words";
  }
  EXPECT_FALSE(std::filesystem::exists(made));
}

TEST_F(Scratch, OfAKilledProcessIsRemovedByTheNextOneAndNothingBehindItsLinks) {
  path dead, living;
  const pid_t first = other(dead), second = other(living);
  kill(first);
  EXPECT_TRUE(std::filesystem::exists(dead));
  const ScratchFolder mine = ScratchFolder::create().value();
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(living / "file"));
  EXPECT_TRUE(std::filesystem::exists(outside / "theirs"));
  kill(second);
}

TEST_F(Scratch, OfAnotherMachineOrNameStays) {
  for (const char* name : {"lockstep-00000000-abcdef", "lockstep-mine", "else"})
    std::filesystem::create_directory(temporary / name);
  const ScratchFolder mine = ScratchFolder::create().value();
  for (const char* name : {"lockstep-00000000-abcdef", "lockstep-mine", "else"})
    EXPECT_TRUE(std::filesystem::exists(temporary / name)) << name;
}

TEST_F(Scratch, WhereThereIsNoTemporaryFolderIsAnErrorThatNamesIt) {
  ::setenv("TMPDIR", (temporary / "gone").c_str(), 1);
  const auto made = ScratchFolder::create();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kConfig);
  for (const std::string& word : {std::string("temporary folder"), (temporary / "gone").string()})
    EXPECT_NE(made.error().message.find(word), std::string::npos) << made.error().message;
}

// It takes names, and no byte: as a disk that is full.
TEST_F(Scratch, AFullTemporaryFolderIsNoSpaceAndLeavesNothing) {
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  const auto made = ScratchFolder::create();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, signal_before);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kNoSpace);
  EXPECT_NE(made.error().message.find(temporary.string()), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(temporary));
}

}  // namespace
}  // namespace lockstep::launcher
