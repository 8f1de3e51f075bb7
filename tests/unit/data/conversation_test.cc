#include "data/prepare/conversation.h"

#include "data/prepare/chat_template.h"
#include "data/prepare/record.h"
#include "data/tokenizer/definitions.h"
#include "tests/unit/data/data_test_support.h"
#include "tests/unit/data/tokenizer_definitions.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const char* const kTurns = R"([{"role": "user", "content": "hi"},)"
                           R"( {"role": "assistant", "content": "no"},)"
                           R"( {"role": "user", "content": "so?"},)"
                           R"( {"role": "assistant", "content": "yes"}])";

// The turns of a record in chatml, as "user:hi;assistant:[no];", with [ ] around what is learnt.
// The names of keys in `ignored`, with spaces between, are passed over.
std::string turns(const std::string& line, const std::string& ignored = "") {
  nlohmann::json definition = small_definition();
  for (const auto& [id, name] : {std::pair(261, "<|im_start|>"), std::pair(262, "<|im_end|>")})
    definition["added_tokens"].push_back({{"id", id}, {"content", name}, {"special", true}});
  const auto tokenizer = parse_tokenizer_json(definition.dump(), "");
  EXPECT_TRUE(tokenizer.ok()) << message_of(tokenizer);
  const std::optional<ChatTemplate> chat =
      ChatTemplate::create("chatml", *tokenizer.value()).value();
  RecordFormat format{.chat_template = "chatml"};
  for (const std::string& key : split(ignored, ' '))
    if (!key.empty()) format.ignored_keys.insert(key);
  const auto record = parse_record(line, format, chat);
  if (!record.ok()) return "error: " + record.error().message;
  std::string all;
  for (const Passage& each : record.value().passages) {
    const std::string words = !each.token ? each.words : *each.token == 262 ? ";" : "";
    all += each.in_loss ? "[" + words + "]" : words;
  }
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = all.find(from, at)) != all.npos; at += to.size())
      all.replace(at, from.size(), to);
  };
  replace("\n", ":");
  replace("][;]:", "];");
  replace(";:", ";");
  return record.value().is_learnt ? all : "left out: " + all;
}

std::string with_turns(const std::string& turn_list, const std::string& more = "") {
  return R"({"messages": )" + turn_list + more + "}";
}
// Of an answer that has `key`.
std::string answer_with(const std::string& key, const std::string& ignored = "") {
  return turns(with_turns(R"([{"role": "user", "content": "hi"}, {"role": "assistant", )"
                          R"("content": "no", )" +
                          key +
                          R"(}, {"role": "user", "content": "so?"}, {"role": "assistant", )"
                          R"("content": "yes"}])"),
               ignored);
}

constexpr const char* kAll = "user:hi;assistant:[no];user:so?;assistant:[yes];";
constexpr const char* kSecond = "user:hi;assistant:no;user:so?;assistant:[yes];";

TEST(Turns, AWeightOfZeroTakesAnAnswerOutOfTheLoss) {
  ASSERT_EQ(turns(with_turns(kTurns)), kAll);
  for (const char* const key : {"weight", "loss_weight", "train", "trainable", "loss"}) {
    const auto with = [&](const char* value) {
      return answer_with(text("\"", key, "\": ", value));
    };
    EXPECT_EQ(with("0"), kSecond) << key;
    EXPECT_EQ(with("0.0"), kSecond) << key;
    EXPECT_EQ(with("false"), kSecond) << key;
    for (const char* const value : {"1", "1.0", "true", "null"})
      EXPECT_EQ(with(value), kAll) << key;
    for (const char* const value : {"0.5", "2", "-1", "\"0\"", "[0]"})
      EXPECT_THAT(with(value), AllOf(HasSubstr(text("messages[1]: \"", key, "\" is ")),
                                     HasSubstr("weight 1"), HasSubstr(text("--ignore-key ", key))))
          << value;
  }
  EXPECT_EQ(answer_with(R"("weight": 0)", "weight"), kAll);
  EXPECT_THAT(answer_with(R"("weight": 0, "train": true)"), HasSubstr("contradicts"));
}

TEST(Turns, SpeakersHaveWeightsToo) {
  EXPECT_EQ(turns(R"({"conversations": [{"from": "human", "value": "hi", "weight": 0.0},)"
                  R"( {"from": "gpt", "value": "no", "weight": 0}, {"from": "human", "value": )"
                  R"("so?", "weight": null}, {"from": "gpt", "value": "yes", "weight": 1.0}]})"),
            kSecond);
}

TEST(Turns, OnlyAnswersCanBeLearnt) {
  const auto question = [](const char* key) {
    return turns(text(R"({"messages": [{"role": "user", "content": "hi", )", key,
                      R"(}, {"role": "assistant", "content": "no"}]})"));
  };
  EXPECT_EQ(question(R"("train": false)"), "user:hi;assistant:[no];");
  EXPECT_THAT(question(R"("train": true)"),
              HasSubstr("a turn of the role \"user\" is to be learnt"));
}

TEST(Turns, ARecordWithoutALearntAnswerIsLeftOut) {
  EXPECT_EQ(turns(R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", )"
                  R"("content": "no", "train": false}]})"),
            "left out: user:hi;assistant:no;");
}

TEST(Turns, SpansOfATurnAreRefused) {
  EXPECT_THAT(
      answer_with(R"("train_detail": [{"begin_offset": 0, "end_offset": 1, "train": false}])"),
      AllOf(HasSubstr("messages[1]: \"train_detail\" says which characters"),
            HasSubstr("--ignore-key train_detail")));
  EXPECT_EQ(answer_with(R"("train_detail": null)"), kAll);
}

TEST(Turns, AKeyThatIsNotKnownIsRefused) {
  EXPECT_THAT(
      answer_with(R"("rating": 1, "foo bar": 2)"),
      AllOf(HasSubstr("messages[1]: the keys \"rating\", \"foo bar\" of the turn are not known"),
            HasSubstr("--ignore-key rating --ignore-key 'foo bar' passes over them")));
  EXPECT_EQ(answer_with(R"("rating": 1)", "rating"), kAll);
  EXPECT_EQ(answer_with(R"("rating": null, "refusal": "", "annotations": [])"), kAll);
  EXPECT_EQ(answer_with(R"("id": 7, "name": "n", "timestamp": 1, "meta_x": {"a": 1})"), kAll);
  EXPECT_THAT(turns(with_turns(kTurns, R"(, "quality": 3)")),
              HasSubstr("the key \"quality\" of the record is not known"));
  EXPECT_EQ(turns(with_turns(kTurns, R"(, "quality": 3)"), "quality"), kAll);
  EXPECT_EQ(turns(with_turns(kTurns, R"(, "id": 3, "source": "s", "metadata": {"a": [1]})")), kAll);
}

TEST(Turns, OldCallsOfFunctionsAreRefused) {
  EXPECT_THAT(answer_with(R"("function_call": {"name": "f", "arguments": "{}"})"),
              AllOf(HasSubstr("\"function_call\" is of OpenAI's old form"),
                    HasSubstr("an empty answer would be learnt")));
  EXPECT_THAT(turns(with_turns(kTurns, R"(, "functions": [{"name": "f"}])")),
              HasSubstr("\"functions\" is of OpenAI's old form"));
}

TEST(Turns, TextPartsAreJoinedAndOthersRefused) {
  const auto content = [](const char* parts) {
    return turns(text(R"({"messages": [{"role": "user", "content": )", parts,
                      R"(}, {"role": "assistant", "content": "no"}]})"));
  };
  EXPECT_EQ(content(R"([{"type": "text", "text": "good "}, {"type": "text", "text": "day"}])"),
            "user:good day;assistant:[no];");
  EXPECT_THAT(content(R"([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}])"),
              AllOf(HasSubstr("messages[0]: \"content\" has a part of the type \"image_url\"")));
  EXPECT_THAT(content(R"(["a"])"), HasSubstr("no object with a \"type\""));
  EXPECT_THAT(content("7"), HasSubstr("the field \"content\" is not a string but number"));
  EXPECT_THAT(
      turns(with_turns(kTurns, R"(, "images": ["a.png"])")),
      AllOf(HasSubstr("\"images\" is given, and only text"), HasSubstr("--ignore-key images")));
  EXPECT_EQ(turns(with_turns(kTurns, R"(, "images": [])")), kAll);
}

TEST(Turns, UnknownRolesAreNamed) {
  for (const char* const role : {"bing", "Assistant", "function", "developer"}) {
    const std::string said = turns(text(R"({"conversations": [{"from": "human", "value": "hi"},)",
                                        R"( {"from": ")", role, R"(", "value": "no"}]})"));
    EXPECT_THAT(said, HasSubstr(text("message 2 has the role \"", role, "\", which is not")));
  }
}

TEST(Turns, ASystemColumnIsTheFirstTurn) {
  const std::string column = R"(, "system": "be kind")";
  EXPECT_EQ(turns(with_turns(kTurns, column)), std::string("system:be kind;") + kAll);
  const auto with_system = [&](const char* words) {
    return turns(with_turns(
        text(R"([{"role": "system", "content": ")", words, "\"}, ", std::string(kTurns).substr(1)),
        column));
  };
  EXPECT_EQ(with_system("be kind"), std::string("system:be kind;") + kAll);
  EXPECT_THAT(with_system("be brief"),
              AllOf(HasSubstr("\"system\" differs from the system message"),
                    HasSubstr("--ignore-key system")));
  EXPECT_EQ(turns(with_turns(kTurns, R"(, "system": "")")), kAll);
}

TEST(Turns, HistoryComesBeforeTheTurns) {
  const std::string last = R"([{"role": "user", "content": "so?"}, )"
                           R"({"role": "assistant", "content": "yes"}])";
  EXPECT_EQ(turns(with_turns(last, R"(, "history": [["hi", "no"]])")), kAll);
  EXPECT_EQ(turns(with_turns(last, R"(, "history": [["hi", "no"]], "system": "s")")),
            std::string("system:s;") + kAll);
  EXPECT_EQ(turns(with_turns(last, R"(, "history": [{"role": "user", "content": "hi"},)"
                                   R"( {"role": "assistant", "content": "no", "weight": 0}])")),
            kSecond);
  EXPECT_EQ(turns(with_turns(last, R"(, "history": [])")), "user:so?;assistant:[yes];");
  EXPECT_THAT(turns(with_turns(last, R"(, "history": [["hi"]])")),
              HasSubstr("\"history\" is no list of pairs"));
}

TEST(Turns, OfAPromptAndACompletionOnlyTheLatterIsLearnt) {
  const std::string prompt = R"({"prompt": [{"role": "user", "content": "hi"}, )"
                             R"({"role": "assistant", "content": "no"}, )"
                             R"({"role": "user", "content": "so?"}])";
  EXPECT_EQ(turns(prompt + R"(, "completion": [{"role": "assistant", "content": "yes"}]})"),
            kSecond);
  EXPECT_THAT(turns(R"({"prompt": "hi", "completion": "no"})"),
              AllOf(HasSubstr("neither a list \"messages\""),
                    HasSubstr("--prompt-field prompt --response-field completion")));
  EXPECT_THAT(turns(prompt + R"(, "completion": [{"role": "assistant", "content": "yes"}], )"
                             R"("messages": [{"role": "user", "content": "hi"}]})"),
              HasSubstr("under two names"));
}

TEST(Turns, APromptBesideTheTurnsRepeatsTheFirstQuestion) {
  EXPECT_EQ(turns(with_turns(kTurns, R"(, "prompt": "hi", "prompt_id": "7")")), kAll);
  EXPECT_THAT(turns(with_turns(kTurns, R"(, "prompt": "ho")")),
              HasSubstr("\"prompt\" stands next to the turns"));
  EXPECT_THAT(turns(with_turns(kTurns, R"(, "completion": "ho")")),
              HasSubstr("\"completion\" of the record is not known"));
}

TEST(Turns, BadAnswersOfPreferenceDataAreRefused) {
  EXPECT_EQ(turns(with_turns(kTurns, R"(, "label": true)")), kAll);
  EXPECT_THAT(turns(with_turns(kTurns, R"(, "label": false)")),
              AllOf(HasSubstr("an example of a bad one"),
                    HasSubstr("--ignore-key label learns it as a good answer")));
  EXPECT_EQ(turns(with_turns(kTurns, R"(, "label": false)"), "label"), kAll);
  EXPECT_THAT(turns(with_turns(kTurns, R"(, "label": "bad")")),
              HasSubstr("neither true nor false"));
  EXPECT_THAT(turns(with_turns(kTurns, R"(, "rejected": [{"role": "user", "content": "x"}])")),
              HasSubstr("\"rejected\" is preference data"));
  EXPECT_THAT(turns(with_turns(kTurns, R"(, "weight": 0)")),
              HasSubstr("\"weight\" of the record says that it is not to be learnt"));
}

TEST(Turns, ATextOfAListIsTheList) {
  const nlohmann::json words = kTurns;
  EXPECT_EQ(turns(with_turns(words.dump(), R"(, "tools": "")")), kAll);
  EXPECT_EQ(turns(R"({"conversations": )" + std::string(kTurns) + "}"), kAll);
}

}  // namespace
}  // namespace lockstep::data
