#include "cli/prepare/prepare_command.h"

#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

struct Outcome {
  int status;
  std::string out, err;
};

Outcome call(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "prepare");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = cli::prepare_command(static_cast<int>(argv.size()), argv.data());
  std::fflush(nullptr);
  return {status, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

TEST(PrepareCommand, PreparesThenSaysUpToDate) {
  const test_support::TempDir dir;
  write_text(dir / "in.txt", some_text(1, 3000));
  const std::string in = (dir / "in.txt").string(), out = (dir / "out").string();
  const Outcome first = call({in, "--out", out});
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr(out));
  const Outcome second = call({in, "--out", out});
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("up to date"));
  const Outcome other = call({in, "--out", out, "--val-fraction", "0.1"});
  EXPECT_EQ(other.status, 64);
  EXPECT_THAT(other.err, HasSubstr("was prepared differently"));
  const Outcome forced = call({in, "--out", out, "--val-fraction", "0.1", "--force"});
  EXPECT_EQ(forced.status, 0) << forced.err;
}

TEST(PrepareCommand, SaysWhichFractionHoldsSomeTextOut) {
  const test_support::TempDir dir;
  for (int i = 0; i < 6; ++i)
    write_text(dir / "in" / (std::to_string(i) + ".txt"), some_text(i, 3000));
  const auto prepared = [&](const std::string& fraction) {
    return call({(dir / "in").string(), "--out", (dir / "out").string(), "--force",
                 "--val-fraction", fraction});
  };
  const std::string none = prepared("0.000001").err, before = "split; give --val-fraction ";
  const size_t at = none.find(before);
  ASSERT_NE(at, none.npos) << none;
  const std::string fraction = none.substr(at + before.size(), 4);
  EXPECT_EQ(prepared(fraction).err, "");
  EXPECT_THAT(prepared(std::to_string(std::stod(fraction) - 0.01)).err, HasSubstr(fraction));
  write_text(dir / "one.txt", some_text(1, 100));
  const Outcome one = call(
      {(dir / "one.txt").string(), "--out", (dir / "one").string(), "--val-fraction", "0.000001"});
  EXPECT_THAT(one.err, HasSubstr("raise --val-fraction or add text"));
}

TEST(PrepareCommand, LearnsAVocabularyFirst) {
  const test_support::TempDir dir;
  write_text(dir / "in.txt", some_text(1, 3000));
  const std::string in = (dir / "in.txt").string(), out = (dir / "out").string();
  const Outcome first = call({in, "--out", out, "--train-bpe", "400"});
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("vocabulary 400 (tokenizer.json)"));
  EXPECT_TRUE(std::filesystem::exists(dir / "out/tokenizer/tokenizer.json"));
  EXPECT_THAT(call({in, "--out", out, "--train-bpe", "400"}).out, HasSubstr("up to date"));
  EXPECT_EQ(call({in, "--out", out, "--train-bpe", "401"}).status, 64);
  EXPECT_EQ(call({in, "--out", out, "--train-bpe", "400", "--tokenizer", "byte"}).status, 64);
  EXPECT_THAT(call({"--inspect", out}).out, HasSubstr("tokenizer tokenizer.json"));
}

TEST(PrepareCommand, HelpHasExamples) {
  const Outcome help = call({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("Examples"));
  EXPECT_THAT(help.out, HasSubstr("--val-fraction"));
}

TEST(PrepareCommand, WrongArgumentsAreStatus64) {
  const test_support::TempDir dir;
  write_text(dir / "in.txt", "text");
  const std::string in = (dir / "in.txt").string(), out = (dir / "out").string();
  EXPECT_EQ(call({in}).status, 64);
  EXPECT_EQ(call({in, "--out", out, "--val-fraction", "0.9"}).status, 64);
  EXPECT_EQ(call({in, "--out", out, "--val-fracton", "0.1"}).status, 64);
  const Outcome tokenizer = call({in, "--out", out, "--tokenizer", "bpe"});
  EXPECT_EQ(tokenizer.status, 64);
  EXPECT_THAT(tokenizer.err, HasSubstr("\"bpe\": no such file or folder"));
  const Outcome missing = call({(dir / "nowhere").string(), "--out", out});
  EXPECT_EQ(missing.status, 64);
  EXPECT_THAT(missing.err, HasSubstr("nowhere: no such file or folder"));
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

}  // namespace
}  // namespace lockstep::data
