#include "checkpoint/save/preflight.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>

#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint {
namespace {

// Ends this process, a fork, with 0 when an HDF5 that refuses `what` is an error that says `why`.
void end_as_refused(const char* what, Codec codec, const char* why) {
  setenv("REFUSE_HDF5", what, 1);
  const TempDir dir;
  const auto tried = try_saving(disk(), dir / "c", 0, codec);
  const bool right = !tried.ok() && tried.error().code == Code::kConfig &&
                     tried.error().message.find(why) != std::string::npos;
  std::fprintf(stderr, "%s", tried.ok() ? "no error" : tried.error().message.c_str());
  _exit(right ? 0 : 1);
}

TEST(Preflight, EachCodecCanBeSavedAndNothingIsLeft) {
  const TempDir dir;
  for (const Codec codec : {Codec::kZstd, Codec::kNone, Codec::kGzip})
    for (const int rank : {0, 12}) {
      const auto tried = try_saving(disk(), dir / "run" / "c", rank, codec);
      EXPECT_TRUE(tried.ok()) << codec << ": " << tried.error().message;
    }
  EXPECT_TRUE(disk().list(dir / "run" / "c").value().empty());
}

TEST(Preflight, AFolderThatCannotBeIsTheUsers) {
  const TempDir dir;
  ASSERT_TRUE(publish_file(disk(), dir / "file", "in the way").ok());
  // No user, root neither, makes a folder in the last two.
  for (const auto& folder : {dir / "file", dir / "file" / "c", std::filesystem::path("/proc/c"),
                             std::filesystem::path("/sys/c")}) {
    const auto tried = try_saving(disk(), folder, 1, Codec::kZstd);
    ASSERT_FALSE(tried.ok()) << folder;
    EXPECT_EQ(tried.error().code, Code::kConfig) << tried.error().message;
    EXPECT_THAT(tried.error().message, HasSubstr(folder.string() + " (checkpoint.folder)"));
  }
}

TEST(Preflight, ADiskThatFailsMayDoBetterNextTime) {
  const TempDir dir;
  FaultyFileSystem faulty(disk());
  for (const auto& [fault, code] :
       {std::pair(Fault::kIoError, Code::kIo), std::pair(Fault::kNoSpace, Code::kNoSpace)}) {
    faulty.set_plan({.op = Op::kCreate, .at_call = 1, .fault = fault});
    const auto tried = try_saving(faulty, dir / "c", 0, Codec::kZstd);
    ASSERT_FALSE(tried.ok());
    EXPECT_EQ(tried.error().code, code) << tried.error().message;
  }
}

TEST(PreflightDeathTest, AFileDriverThatIsNotRegisteredIsAnError) {
  EXPECT_EXIT(end_as_refused("driver", Codec::kNone, "registering the file driver"),
              testing::ExitedWithCode(0), "HDF5 1\\..* cannot write checkpoints of codec none");
}

TEST(PreflightDeathTest, ACodecThatDoesNotLoadIsAnError) {
  EXPECT_EXIT(end_as_refused("filter", Codec::kZstd, "HDF5: creating a dataset"),
              testing::ExitedWithCode(0), "HDF5 1\\..* cannot write checkpoints of codec zstd");
}

}  // namespace
}  // namespace lockstep::checkpoint
