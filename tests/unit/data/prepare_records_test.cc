#include <csignal>

#include "cli/prepare/prepare_inspect.h"
#include "data/loader/open_dataset.h"
#include "data/prepare/bpe_trainer.h"
#include "data/prepare/chat_template.h"
#include "data/prepare/prepare.h"
#include "data/tokenizer/open_tokenizer.h"
#include "tests/unit/data/data_test_support.h"
#include "tests/unit/data/tokenizer_definitions.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

class PrepareRecordsTest : public testing::Test {
 protected:
  Result<PrepareReport> prepare_lines(const std::string& lines, const RecordFormat& format,
                                      int64_t val_millionths = 0) {
    write_text(dir_ / "in.jsonl", lines);
    PrepareOptions options = options_for(dir_ / "in.jsonl", dir_ / "out");
    options.records = format;
    options.val_millionths = val_millionths;
    options.force = true;
    options.shard_tokens = 50;
    return prepare_bytes(options);
  }
  // The whole train split as one sample: tokens, and labels with "." for what does not count.
  std::pair<std::string, std::string> stream() {
    const auto manifest = read_manifest(posix_file_system(), dir_ / "out");
    EXPECT_TRUE(manifest.ok()) << message_of(manifest);
    const auto dataset = open_dataset(
        posix_file_system(), {.path = dir_ / "out"},
        {"train", manifest.value().tokens("train") - 1, 1, 1, 0, ByteTokenizer::kVocabSize});
    EXPECT_TRUE(dataset.ok()) << message_of(dataset);
    const auto sample = dataset.value()->sample(0);
    EXPECT_TRUE(sample.ok()) << message_of(sample);
    std::string tokens, labels;
    const auto letter = [](int64_t id) {
      return id == 256 ? '$' : id == kNotCounted ? '.' : static_cast<char>(id);
    };
    for (const int64_t id : sample.value().tokens) tokens += letter(id);
    for (const int64_t id : sample.value().labels) labels += letter(id);
    EXPECT_EQ(sample.value().valid_tokens,
              std::count_if(labels.begin(), labels.end(), [](char c) { return c != '.'; }));
    return {tokens, labels};
  }
  test_support::TempDir dir_;
};

TEST_F(PrepareRecordsTest, ATextFieldCountsAsAWhole) {
  auto report = prepare_lines("{\"text\": \"one\"}\n\n{\"text\": \"two\", \"id\": 1}",
                              {.text_field = "text"});
  ASSERT_TRUE(report.ok()) << message_of(report);
  EXPECT_FALSE(report->manifest.shards[0].mask);
  EXPECT_EQ(stream(), std::pair(std::string("one$two"), std::string("ne$two$")));
}

TEST_F(PrepareRecordsTest, OnlyTheResponseCounts) {
  auto report = prepare_lines("{\"p\": \"2+2=\", \"r\": \"4\"}\n{\"p\": \"x\", \"r\": \"yz\"}\n",
                              {.prompt_field = "p", .response_field = "r"});
  ASSERT_TRUE(report.ok()) << message_of(report);
  EXPECT_TRUE(report->manifest.shards[0].mask);
  EXPECT_EQ(stream(), std::pair(std::string("2+2=4$xyz"), std::string("...4$.yz$")));
}

// Masks over shard ends (50 tokens, words of 16 bits) and after each other.
TEST_F(PrepareRecordsTest, MasksFollowTheirTokensOverShards) {
  std::string lines, tokens, labels;
  for (int i = 0; i < 60; ++i) {
    const std::string prompt(static_cast<size_t>(i % 7), 'p');
    const std::string response(static_cast<size_t>(i % 11), 'r');
    lines += text("{\"p\":\"", prompt, "\",\"r\":\"", response, "\"}\n");
    tokens += prompt + response + "$";
    labels += std::string(prompt.size(), '.') + response + "$";
  }
  auto report = prepare_lines(lines, {.prompt_field = "p", .response_field = "r"});
  ASSERT_TRUE(report.ok()) << message_of(report);
  EXPECT_GT(report->manifest.shards.size(), 5u);
  tokens.pop_back();
  EXPECT_EQ(stream(), std::pair(tokens, labels.substr(1)));
}

TEST_F(PrepareRecordsTest, ADamagedMaskIsNamed) {
  ASSERT_TRUE(prepare_lines("{\"p\": \"aaaa\", \"r\": \"bbbb\"}\n",
                            {.prompt_field = "p", .response_field = "r"})
                  .ok());
  std::string mask = contents_of(dir_ / "out/train_00000.mask");
  mask[mask.size() - 2] ^= 1;
  write_text(dir_ / "out/train_00000.mask", mask);
  const auto dataset =
      open_dataset(posix_file_system(), {.path = dir_ / "out"}, {"train", 4, 1, 1, 0, 257});
  ASSERT_TRUE(dataset.ok()) << message_of(dataset);
  const auto sample = dataset.value()->sample(0);
  ASSERT_FALSE(sample.ok());
  EXPECT_EQ(sample.error().code, Code::kCorrupt);
  EXPECT_THAT(sample.error().message, HasSubstr("train_00000.mask"));
}

TEST_F(PrepareRecordsTest, ThreadsChangeNothing) {
  std::string lines;
  for (int i = 0; i < 3000; ++i)
    lines += text("{\"text\":\"", hex64(mix64(static_cast<uint64_t>(i))), " and more\"}\n");
  write_text(dir_ / "in.jsonl", lines);
  std::vector<std::string> hashes;
  for (const int threads : {1, 2, 5}) {
    PrepareOptions options = options_for(dir_ / "in.jsonl", dir_ / text("out", threads));
    options.records = RecordFormat{.text_field = "text"};
    options.threads = threads;
    auto report = prepare_bytes(options);
    ASSERT_TRUE(report.ok()) << message_of(report);
    EXPECT_GT(report->manifest.tokens("val"), 0);
    hashes.push_back(report->manifest.hash);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[0], hashes[2]);
}

TEST_F(PrepareRecordsTest, ErrorsNameFileAndLine) {
  const RecordFormat format{.text_field = "text"};
  const auto error = [&](const std::string& lines) {
    return message_of(prepare_lines(lines, format));
  };
  EXPECT_THAT(error("{\"text\": \"a\"}\n{\"txt\": \"b\"}\n"),
              testing::AllOf(HasSubstr("in.jsonl: line 2"), HasSubstr("its fields are: txt")));
  EXPECT_THAT(error("{\"text\": 1}\n"), HasSubstr("is not a string"));
  EXPECT_THAT(error("{\"text\": \n"), HasSubstr("line 1: the line is not a JSON object"));
  EXPECT_THAT(error("{\"text\": \"\xff\"}\n"), HasSubstr("not UTF-8 at byte offset 10"));
  write_text(dir_ / "x.jsonl", "{}\n");
  EXPECT_THAT(message_of(prepare_bytes(options_for(dir_ / "x.jsonl", dir_ / "y"))),
              HasSubstr("--text-field"));
}

TEST_F(PrepareRecordsTest, WhatIsNoJsonIsSaid) {
  const RecordFormat format{.text_field = "text"};
  const auto error = [&](const std::string& lines) {
    return message_of(prepare_lines(lines, format));
  };
  EXPECT_THAT(
      error("{\"text\": \"a\"}\n{\"text\": \"a\", \"score\": NaN}\n"),
      testing::AllOf(HasSubstr("in.jsonl: line 2: the line is not a JSON object: near column"),
                     HasSubstr("stands NaN, which JSON does not have")));
  EXPECT_THAT(error("{\"text\": \"a\", \"score\": -Infinity}\n"), HasSubstr("stands Infinity"));
  for (const char* const half : {"\\ud83d", "\\ud83d!", "\\ude00"})
    EXPECT_THAT(error(text("{\"text\": \"a", half, "\"}\n")),
                HasSubstr("line 1: the line is not a JSON object: near column"))
        << half;
  EXPECT_THAT(error("{\"text\": \"\\ud83d\"}\n"), HasSubstr("half of a surrogate pair"));
  EXPECT_THAT(error("[\"a\"]\n"), HasSubstr("line 1: the line is not a JSON object but a list"));
  EXPECT_THAT(error("plain\n"), HasSubstr("line 1: the line is not a JSON object"));
}

TEST_F(PrepareRecordsTest, AKeyThatIsNotKnownIsAnErrorAtItsFirstLine) {
  const std::string lines =
      "{\"p\": \"a\", \"r\": \"b\", \"id\": 1}\n"
      "{\"p\": \"a\", \"r\": \"b\", \"mood\": 1}\n";
  RecordFormat format{.prompt_field = "p", .response_field = "r"};
  EXPECT_THAT(
      message_of(prepare_lines(lines, format)),
      testing::AllOf(HasSubstr("in.jsonl: line 2: the key \"mood\" of the record is not known"),
                     HasSubstr("--ignore-key mood passes over it")));
  format.ignored_keys = {"mood"};
  auto ignored = prepare_lines(lines, format);
  ASSERT_TRUE(ignored.ok()) << message_of(ignored);
  EXPECT_EQ(ignored->manifest.recipe.records, "prompt_field p response_field r");
  EXPECT_EQ(stream(), std::pair(std::string("ab$ab"), std::string("b$.b$")));
}

TEST_F(PrepareRecordsTest, WhatAPromptHasNoPlaceForIsRefused) {
  const RecordFormat format{.prompt_field = "p", .response_field = "r"};
  const auto error = [&](const std::string& more) {
    return message_of(prepare_lines("{\"p\": \"a\", \"r\": \"b\", " + more + "}\n", format));
  };
  EXPECT_THAT(error(R"("label": false)"), HasSubstr("an example of a bad one"));
  EXPECT_EQ(error(R"("label": true)"), "");
  EXPECT_THAT(error(R"("history": [["a", "b"]])"), HasSubstr("\"history\" holds earlier turns"));
  EXPECT_THAT(error(R"("system": "s")"), HasSubstr("\"system\" holds a system message"));
  EXPECT_EQ(error(R"("system": "", "history": [], "input": null)"), "");
  EXPECT_THAT(error(R"("weight": 0)"), HasSubstr("\"weight\" of the record says"));
  EXPECT_THAT(error(R"("input": "i")"), HasSubstr("the key \"input\" of the record is not known"));
  EXPECT_THAT(
      message_of(prepare_lines(R"({"p": [{"role": "user", "content": "a"}], "r": "b"})", format)),
      HasSubstr("for these: --chat-template"));
}

TEST_F(PrepareRecordsTest, AnIgnoredKeyWithAMeaningIsInTheRecipe) {
  RecordFormat format{.chat_template = "chatml"};
  EXPECT_EQ(format.description(), "chat chatml");
  format.ignored_keys = {"weight", "label", "mood"};
  EXPECT_EQ(format.description(), "chat chatml ignore_key label,weight");
  EXPECT_EQ(RecordFormat::chat_template_in(format.description()), "chatml");
  EXPECT_EQ(RecordFormat::chat_template_in("chat chatml"), "chatml");
  EXPECT_EQ(RecordFormat::chat_template_in("text_field text"), "");
}

TEST_F(PrepareRecordsTest, LinesUnderAnotherNameAreNotLearntAsText) {
  for (const char* const name : {"a.ndjson", "a.json", "a.JSONL", "a.jsonl.txt", "a.txt"}) {
    write_text(dir_ / name, "{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}\n");
    PrepareOptions options = options_for(dir_ / name, dir_ / name / "out");
    options.out = dir_ / "named";
    EXPECT_THAT(message_of(prepare_bytes(options)),
                testing::AllOf(HasSubstr(text(name, ": JSON lines; say which field")),
                               HasSubstr("--prompt-field instruction --response-field output"),
                               HasSubstr("--as-text")))
        << name;
    options.as_text = true;
    options.force = true;
    options.val_millionths = 0;
    EXPECT_EQ(message_of(prepare_bytes(options)), "") << name;
  }
}

TEST_F(PrepareRecordsTest, ArraysAndTablesGiveTheTokensOfTheirLines) {
  const RecordFormat format{.prompt_field = "p", .response_field = "r"};
  for (const auto& [name, contents] :
       {std::pair("a.json", R"([{"p": "a", "r": ","}, {"p": "", "r": "b"},{"p": "", "r": "c"}])"),
        std::pair("a.csv", "p,r\na,\",\"\n,b\n\"\",c\n"),
        std::pair("a.tsv", "p\tr\na\t,\n\tb\n\tc\n")}) {
    write_text(dir_ / name, contents);
    PrepareOptions options = options_for(dir_ / name, dir_ / "out");
    options.records = format;
    options.val_millionths = 0;
    options.force = true;
    auto report = prepare_bytes(options);
    ASSERT_TRUE(report.ok()) << message_of(report);
    EXPECT_EQ(stream().first, "a,$b$c") << name;
    EXPECT_EQ(stream().second, ",$b$c$") << name;
  }
  write_text(dir_ / "b.csv", "p,r\na,b\nc,d\n");
  PrepareOptions options = options_for(dir_ / "b.csv", dir_ / "other");
  options.records = RecordFormat{.text_field = "text"};
  EXPECT_THAT(message_of(prepare_bytes(options)),
              HasSubstr("b.csv: row 1: it has no field \"text\""));
}

TEST_F(PrepareRecordsTest, RecordsWithNothingToLearnAreAnError) {
  const RecordFormat format{.prompt_field = "p", .response_field = "r"};
  EXPECT_THAT(message_of(prepare_lines("{\"p\": \"a\", \"r\": \"\"}\n", format)),
              testing::AllOf(HasSubstr("there is nothing to learn in"),
                             HasSubstr("1 of 1 record are empty")));
  EXPECT_THAT(
      message_of(prepare_lines("{\"text\": \"\"}\n{\"text\": \"\"}\n", {.text_field = "text"})),
      HasSubstr("2 of 2 records are empty"));
  auto some = prepare_lines("{\"text\": \"\"}\n{\"text\": \"ab\"}\n", {.text_field = "text"});
  ASSERT_TRUE(some.ok()) << message_of(some);
  EXPECT_EQ(some->understood.empty, 1);
  EXPECT_EQ(stream().first, "$ab");
}

TEST_F(PrepareRecordsTest, WhatWasUnderstoodIsToldBeforeAnythingIsWritten) {
  write_text(dir_ / "in.jsonl",
             "{\"p\": \"aaa\", \"r\": \"b\", \"id\": 1}\n"
             "{\"p\": \"a\", \"r\": \"bbbb\", \"mood\": \"\"}\n");
  PrepareOptions options = options_for(dir_ / "in.jsonl", dir_ / "out");
  options.records = RecordFormat{.prompt_field = "p", .response_field = "r"};
  options.val_millionths = 0;
  int told = 0;
  options.on_understood = [&](const Understanding& first) {
    ++told;
    EXPECT_EQ(first.format, "JSON lines");
    EXPECT_EQ(first.keys.used, (std::set<std::string>{"p", "r"}));
    EXPECT_EQ(first.keys.passed_over, (std::set<std::string>{"id", "mood"}));
    EXPECT_FALSE(std::filesystem::exists(dir_ / "out/train_00000.tokens"));
  };
  auto report = prepare_bytes(options);
  ASSERT_TRUE(report.ok()) << message_of(report);
  EXPECT_EQ(told, 1);
  const Understanding& all = report->understood;
  EXPECT_EQ(all.records, 2);
  EXPECT_EQ(all.tokens, 11);
  EXPECT_EQ(all.learnt_tokens, 7);
  EXPECT_EQ(all.longest_tokens, 6);
  EXPECT_EQ(all.longest_place, (dir_ / "in.jsonl").string() + ": line 2");
}

TEST_F(PrepareRecordsTest, ARowOfATableIsNamedByItsOrigin) {
  write_text(dir_ / "in.jsonl", "{\"text\": \"a\"}\n{\"text\": null}\n");
  PrepareOptions options = options_for(dir_ / "in.jsonl", dir_ / "out");
  options.records = RecordFormat{.text_field = "text"};
  options.origin = [](const std::filesystem::path&, int64_t line) {
    return std::optional(text("x.parquet: row ", line));
  };
  EXPECT_EQ(message_of(prepare_bytes(options)),
            "x.parquet: row 2: the field \"text\" is not a string but null");
  EXPECT_EQ(message_of(train_tokenizer(posix_file_system(), options, 300)),
            "x.parquet: row 2: the field \"text\" is not a string but null");
}

// A small tokenizer that has chatml's tokens.
OpenedTokenizer chat_tokenizer(const std::filesystem::path& folder) {
  nlohmann::json definition = small_definition();
  for (const auto& [id, name] : {std::pair(261, "<|im_start|>"), std::pair(262, "<|im_end|>")})
    definition["added_tokens"].push_back({{"id", id}, {"content", name}, {"special", true}});
  write_text(folder / "tokenizer.json", definition.dump());
  auto opened = open_tokenizer(posix_file_system(), folder.string());
  EXPECT_TRUE(opened.ok()) << message_of(opened);
  return std::move(opened).value();
}

TEST_F(PrepareRecordsTest, SpeakersAreRoles) {
  const OpenedTokenizer opened = chat_tokenizer(dir_ / "tok");
  auto chat = ChatTemplate::create("chatml", *opened.tokenizer);
  ASSERT_TRUE(chat.ok()) << message_of(chat);
  const auto shown = [&](const char* line) {
    auto record = parse_record(line, RecordFormat{.chat_template = "chatml"}, chat.value());
    if (!record.ok()) return message_of(record);
    std::string words = record->text;
    for (const Passage& each : record->passages)
      words += text(each.token.value_or(0), each.in_loss, each.words, "|");
    return words;
  };
  const std::string roles = shown(R"({"messages": [{"role": "system", "content": "s"},)"
                                  R"( {"role": "user", "content": "u"},)"
                                  R"( {"role": "assistant", "content": "a"}]})");
  EXPECT_THAT(roles, HasSubstr("system\ns\nuser\nu\nassistant\na\n"));
  EXPECT_EQ(shown(R"({"id": 1, "conversations": [{"from": "system", "value": "s"},)"
                  R"( {"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}]})"),
            roles);
  EXPECT_THAT(
      shown(R"({"conversations": [{"from": "bot", "value": "s"}, {"from": "gpt", "value": "a"}]})"),
      HasSubstr("\"bot\""));
  EXPECT_THAT(shown(R"({"conversations": [{"value": "s"}]})"),
              HasSubstr("conversations[0]: it has no field \"role\"; its fields are: value"));
  EXPECT_THAT(shown(R"({"turns": []})"), HasSubstr("neither a list \"messages\" nor a list"));
}

TEST_F(PrepareRecordsTest, AnswersThatAreNotToBeLearntAreInNoMask) {
  const OpenedTokenizer opened = chat_tokenizer(dir_ / "tok");
  const auto record = [](const char* weight) {
    return text(R"({"messages": [{"role": "user", "content": "hell"}, )",
                R"({"role": "assistant", "content": "o", "weight": )", weight, "}]}\n");
  };
  write_text(dir_ / "in.jsonl", record("1") + record("0") + record("1"));
  PrepareOptions options = options_for(dir_ / "in.jsonl", dir_ / "out");
  options.records = RecordFormat{.chat_template = "chatml"};
  options.val_millionths = 0;
  auto report = prepare(posix_file_system(), *opened.tokenizer, options);
  ASSERT_TRUE(report.ok()) << message_of(report);
  EXPECT_EQ(report->understood.records, 3);
  EXPECT_EQ(report->understood.unlearnt, 1);
  EXPECT_EQ(report->understood.tokens, report->manifest.tokens("train"));
  EXPECT_EQ(report->understood.learnt_tokens, 4);  // "o" and <|im_end|>, twice
  write_text(dir_ / "in.jsonl", record("0"));
  options.force = true;
  EXPECT_THAT(message_of(prepare(posix_file_system(), *opened.tokenizer, options)),
              HasSubstr("1 say that no answer is to be learnt"));
}

TEST_F(PrepareRecordsTest, AChatWithItsTokenizerCanBeInspected) {
  const OpenedTokenizer opened = chat_tokenizer(dir_ / "tok");
  write_text(dir_ / "in.jsonl", R"({"messages": [{"role": "user", "content": "hell <|im_end|>"},)"
                                R"( {"role": "assistant", "content": "hello\nworld"}]})");
  PrepareOptions options = options_for(dir_ / "in.jsonl", dir_ / "out");
  options.records = RecordFormat{.chat_template = "chatml"};
  options.val_millionths = 0;
  options.tokenizer_files = opened.files;
  auto report = prepare(posix_file_system(), *opened.tokenizer, options);
  ASSERT_TRUE(report.ok()) << message_of(report);
  std::ostringstream out;
  const auto done = cli::inspect_sample({(dir_ / "out").string(), "train", 0, 35}, out);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_THAT(out.str(), HasSubstr("     | <|im_start|>user\n"
                                   "     | hell <|im_end|><|im_end|>\n"
                                   "     | <|im_start|>assistant\n"));
  EXPECT_THAT(out.str(), HasSubstr("loss | hello\nloss | w"));
  EXPECT_THAT(message_of(cli::inspect_sample({(dir_ / "out").string(), "train", 9, 35}, out)),
              HasSubstr("sample 9 of 1"));
}

}  // namespace
}  // namespace lockstep::data
