#include "cli/prepare/prepare_command.h"

#include "base/json.h"
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

TEST(PrepareCommand, ShowsWhatItUnderstood) {
  const test_support::TempDir dir;
  write_text(dir / "in/a.csv", "id,p,r\n1,aaa,b\n2,a,bbbb\n");
  write_text(dir / "in/README.md", "# What it is\n");
  const Outcome done =
      call({(dir / "in").string(), "--out", (dir / "out").string(), "--prompt-field", "p",
            "--response-field", "r", "--val-fraction", "0"});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("in/README.md: passed over"));
  EXPECT_THAT(done.out, HasSubstr("understood: a table of comma-separated values, prompt_field p "
                                  "response_field r; keys used: p, r; passed over: id\n"
                                  "  before each document: nothing; at its end: <|end|>\n"));
  EXPECT_THAT(done.out,
              HasSubstr("  the first 2 records: 63.6 % of the tokens are learnt, the longest has 6 "
                        "tokens (" +
                        (dir / "in/a.csv").string() + ": row 2)\n"));
  EXPECT_THAT(done.out, HasSubstr("  " + (dir / "in/a.csv").string() +
                                  ": row 2:\n         | a\n    loss | bbbb<|end|>\n"));
}

TEST(PrepareCommand, ReportsInJson) {
  const test_support::TempDir dir;
  write_text(dir / "a.jsonl", "{\"text\": \"a\", \"id\": 1}\n{\"text\": \"\"}\n");
  const std::vector<std::string> words = {(dir / "a.jsonl").string(),
                                          "--out",
                                          (dir / "out").string(),
                                          "--text-field",
                                          "text",
                                          "--val-fraction",
                                          "0",
                                          "--report",
                                          "json"};
  const auto report = parse_json<nlohmann::json>(call(words).out, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["train_tokens"], 3);
  EXPECT_EQ(report["end_of_document"], "<|end|>");
  EXPECT_EQ(report["understood"]["keys_used"], nlohmann::json({"text"}));
  EXPECT_EQ(report["understood"]["keys_passed_over"], nlohmann::json({"id"}));
  EXPECT_EQ(report["understood"]["records"], 2);
  EXPECT_EQ(report["understood"]["learnt_tokens"], 3);
  EXPECT_EQ(report["understood"]["empty_where_learnt"], 1);
  EXPECT_EQ(report["understood"]["longest"]["tokens"], 2);
  const auto again = parse_json<nlohmann::json>(call(words).out, false);
  EXPECT_EQ(again["up_to_date"], true);
  EXPECT_FALSE(again.contains("understood"));
}

TEST(PrepareCommand, IgnoresTheKeysThatAreNamed) {
  const test_support::TempDir dir;
  write_text(dir / "a.jsonl", "{\"text\": \"a\", \"x\": 1, \"y\": 2, \"z\": {}}\n");
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), {(dir / "a.jsonl").string(), "--out", (dir / "out").string(),
                               "--text-field", "text", "--val-fraction", "0", "--force"});
    return call(words);
  };
  const Outcome none = with({});
  EXPECT_EQ(none.status, 64);
  EXPECT_THAT(none.err, HasSubstr("a.jsonl: line 1: the keys \"x\", \"y\" of the record"));
  EXPECT_THAT(none.err, HasSubstr("--ignore-key x --ignore-key y passes over them"));
  EXPECT_EQ(with({"--ignore-key", "x"}).status, 64);
  const Outcome both = with({"--ignore-key", "x", "--ignore-key", "y"});
  EXPECT_EQ(both.status, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("keys used: text; passed over: x, y, z\n"));
  EXPECT_THAT(with({"--ignore-key", "text"}).err, HasSubstr("another flag reads this key"));
  EXPECT_THAT(call({(dir / "a.jsonl").string(), "--out", "o", "--ignore-key", "x"}).err,
              HasSubstr("--ignore-key is for records"));
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
