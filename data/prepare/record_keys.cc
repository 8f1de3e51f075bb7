#include "data/prepare/record_keys.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/json.h"
#include "base/text.h"

namespace lockstep::data {

namespace {

using nlohmann::ordered_json;

// Of records of all formats, and of turns.
constexpr std::array kInert = {"id",          "_id",        "idx",        "index",
                               "uuid",        "guid",       "uid",        "hash",
                               "md5",         "sha1",       "sha256",     "source",
                               "src",         "origin",     "dataset",    "dataset_name",
                               "subset",      "split",      "category",   "domain",
                               "topic",       "tags",       "url",        "uri",
                               "path",        "file_path",  "filename",   "file_name",
                               "license",     "language",   "lang",       "date",
                               "time",        "timestamp",  "created",    "created_at",
                               "updated_at",  "added",      "version",    "meta",
                               "metadata",    "model",      "model_name", "generator",
                               "token_count", "num_tokens", "n_tokens",   "length",
                               "char_count",  "word_count", "num_turns",  "__index_level_0__"};
// Of records alone.
constexpr std::array kInertOfRecords = {
    "doc_id",      "prompt_id",  "conversation_id",    "conv_id", "message_id",
    "question_id", "example_id", "sample_id",          "row_id",  "repo",
    "repo_name",   "author",     "parallel_tool_calls"};
// Of texts: what pages of the web and of books have beside them.
constexpr std::array kInertOfTexts = {"title",     "dump",           "snapshot", "score",
                                      "int_score", "language_score", "authors",  "publisher"};
// Of turns.
constexpr std::array kInertOfTurns = {"name", "finish_reason", "turn"};

constexpr std::array kLearningKeys = {"weight", "loss_weight", "train", "trainable", "loss"};
// What they and these say changes the tokens or what counts of them.
constexpr std::array kMeant = {
    "label", "system", "history", "tools", "tool_calls", "reasoning_content", "tool_call_id"};

struct Refused {
  const char *key, *reason;
};
constexpr const char* kPreference =
    "is preference data, for which there is no loss here; write the answer that is to be learnt as "
    "\"messages\"";
constexpr const char* kNoText = "is given, and only text is learnt here";
constexpr const char* kOldCalls =
    "is of OpenAI's old form, which no chat template renders, so an empty answer would be learnt; "
    "write \"tool_calls\" and \"tools\"";
constexpr std::array kRefused = {
    Refused{"chosen", kPreference},
    Refused{"rejected", kPreference},
    Refused{"images", kNoText},
    Refused{"image", kNoText},
    Refused{"videos", kNoText},
    Refused{"video", kNoText},
    Refused{"audios", kNoText},
    Refused{"audio", kNoText},
    Refused{"functions", kOldCalls},
    Refused{"function_call", kOldCalls},
    Refused{"train_detail",
            "says which characters of a turn are learnt, and a turn is learnt as a whole or not at "
            "all here"},
    Refused{"history",
            "holds earlier turns, which only a conversation has a place for: use --chat-template"},
    Refused{"system",
            "holds a system message, which only a conversation has a place for: use "
            "--chat-template"},
};

template <size_t N>
bool among(std::string_view key, const std::array<const char*, N>& keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

const Refused* refused(std::string_view key) {
  const auto found = std::find_if(kRefused.begin(), kRefused.end(),
                                  [&](const Refused& each) { return key == each.key; });
  return found == kRefused.end() ? nullptr : &*found;
}

std::string ignoring(const std::string& key, const std::string& effect) {
  return text("; --ignore-key ", shell_quoted(key), " ", effect);
}

// 0 or 1.
std::optional<bool> as_bit(const ordered_json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (number != 0 && number != 1) return std::nullopt;
  return number == 1;
}

// A record that is learnt says nothing new.
Result<void> check_record_learning(const ordered_json& record, const std::set<std::string>& used) {
  ordered_json own = ordered_json::object();
  for (const char* const key : kLearningKeys)
    if (record.contains(key) && !used.contains(key)) own[key] = record[key];
  LOCKSTEP_TRY(const LearningMark learning, learning_of(own));
  if (learning != LearningMark::kNotLearnt) return {};
  const std::string key = own.begin().key();
  return Error{Code::kConfig, text("\"", key,
                                   "\" of the record says that it is not to be learnt; "
                                   "take the record out",
                                   ignoring(key, "learns it"))};
}

Result<void> check_label(const ordered_json& record, KeyPlace place) {
  if (place == KeyPlace::kTurn || place == KeyPlace::kText || !record.contains("label")) return {};
  const ordered_json& label = record["label"];
  if (is_empty_value(label) || label == ordered_json(true)) return {};
  const char* const what = label == ordered_json(false)
                               ? "is false: the answer is an example of a bad one, for which there "
                                 "is no loss here; take the record out"
                               : "is neither true nor false";
  return Error{Code::kConfig,
               text("\"label\" ", what, ignoring("label", "learns it as a good answer"))};
}

Error unknown_keys(const std::vector<std::string>& keys, KeyPlace place) {
  std::string flags;
  for (const std::string& key : keys) flags += " --ignore-key " + shell_quoted(key);
  const bool one = keys.size() == 1;
  std::string names;
  for (const std::string& key : keys) names += text(names.empty() ? "" : ", ", "\"", key, "\"");
  return Error{Code::kConfig,
               text("the ", one ? "key " : "keys ", names, " of the ",
                    place == KeyPlace::kTurn ? "turn" : "record", one ? " is" : " are",
                    " not known, and might say what is to be learnt;", flags, " passes over ",
                    one ? "it" : "them")};
}

}  // namespace

bool is_inert_key(std::string_view key, KeyPlace place) {
  if (among(key, kInert) || key.starts_with("meta_") || key.starts_with("metadata_")) return true;
  if (place == KeyPlace::kTurn) return among(key, kInertOfTurns);
  return among(key, kInertOfRecords) || (place == KeyPlace::kText && among(key, kInertOfTexts));
}

std::vector<std::string> inert_keys(KeyPlace place) {
  std::vector<std::string> keys(kInert.begin(), kInert.end());
  if (place == KeyPlace::kTurn) {
    keys.insert(keys.end(), kInertOfTurns.begin(), kInertOfTurns.end());
    return keys;
  }
  keys.insert(keys.end(), kInertOfRecords.begin(), kInertOfRecords.end());
  if (place == KeyPlace::kText) keys.insert(keys.end(), kInertOfTexts.begin(), kInertOfTexts.end());
  return keys;
}

bool has_meaning(std::string_view key) {
  return among(key, kLearningKeys) || among(key, kMeant) || refused(key) != nullptr;
}

bool is_empty_value(const ordered_json& value) {
  return value.is_null() || (value.is_structured() && value.empty()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

Result<LearningMark> learning_of(const ordered_json& object) {
  LearningMark found = LearningMark::kNotSaid;
  for (const char* const key : kLearningKeys) {
    if (!object.contains(key) || object[key].is_null()) continue;
    const auto bit = as_bit(object[key]);
    if (!bit)
      return Error{Code::kConfig,
                   text("\"", key, "\" is ", dump_json(object[key]),
                        ", and what is learnt is learnt with the weight 1 here, or not at all (0)",
                        ignoring(key, "learns it with the weight 1"))};
    const LearningMark said = *bit ? LearningMark::kLearnt : LearningMark::kNotLearnt;
    if (found != LearningMark::kNotSaid && found != said)
      return Error{Code::kConfig, text("\"", key,
                                       "\" contradicts what another key says of whether "
                                       "this is learnt",
                                       ignoring(key, "goes by the other one"))};
    found = said;
  }
  return found;
}

Result<void> check_keys(const ordered_json& object, KeyPlace place,
                        const std::set<std::string>& used) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : object.items()) {
    if (used.contains(key) || is_inert_key(key, place) || is_empty_value(value)) continue;
    if (among(key, kLearningKeys)) continue;  // below, or learning_of's
    if (key == "label" && place != KeyPlace::kText && place != KeyPlace::kTurn) continue;
    if (const Refused* const found = refused(key))
      return Error{Code::kConfig, text("\"", key, "\" ", found->reason,
                                       ignoring(key, "learns the rest without it"))};
    unknown.push_back(key);
  }
  if (!used.contains("label")) LOCKSTEP_RETURN_IF_ERROR(check_label(object, place));
  if (place != KeyPlace::kTurn) LOCKSTEP_RETURN_IF_ERROR(check_record_learning(object, used));
  if (!unknown.empty()) return unknown_keys(unknown, place);
  return {};
}

std::string flags_for(const ordered_json& record) {
  if (!record.is_object()) return "";
  const auto has = [&](const char* key) { return record.contains(key) && !record[key].is_null(); };
  const auto is_list = [&](const char* key) { return has(key) && record[key].is_array(); };
  if (has("messages") || has("conversations") || (is_list("prompt") && is_list("completion")))
    return "--chat-template auto, with a --tokenizer folder that has a template";
  if (has("instruction") && has("output"))
    return "--prompt-field instruction --response-field output (where \"input\" is not empty it "
           "belongs to the prompt: join the two first)";
  for (const char* const prompt : {"prompt", "question", "query", "problem"})
    for (const char* const response : {"completion", "response", "answer", "solution"})
      if (has(prompt) && has(response))
        return text("--prompt-field ", prompt, " --response-field ", response);
  for (const char* const key : {"text", "content"})
    if (has(key)) return text("--text-field ", key);
  return "";
}

std::string key_names(const ordered_json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  std::string names;
  for (const std::string& key : keys) names += (names.empty() ? "" : ", ") + key;
  return names;
}

}  // namespace lockstep::data
