// A record, which is a JSON object, as a document. The files: data/prepare/record_reader.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/prepare/chat_template.h"

namespace lockstep::data {

// Which fields of a record are the document. One of the three is set.
struct RecordFormat {
  std::string text_field = {};                         // all of it counts in the loss
  std::string prompt_field = {}, response_field = {};  // the response counts
  std::string chat_template = {};  // of a conversation (data/prepare/conversation.h)
  std::shared_ptr<const JinjaTemplate> jinja = {};  // ChatTemplate::create's
  // Keys of records and of turns that are taken as if they were not there.
  std::set<std::string> ignored_keys = {};
  // For the manifest: "text_field text", "chat chatml", … and the ignored keys that have a meaning.
  std::string description() const;
  // The chat template that a description names; "": it is none of conversations.
  static std::string chat_template_in(const std::string& description);
  bool has_mask() const { return text_field.empty(); }
};

struct Record {
  std::vector<Passage> passages;
  std::string text;  // the fields' own words: what decides the split
  // False: each answer of the conversation says that it is not to be learnt.
  bool is_learnt = true;
};

// `chat` is set when the format has a template.
// Errors: kConfig: no JSON object, a field that is missing or no string, check_keys',
// parse_conversation's, ChatTemplate::passages'.
Result<Record> parse_record(std::string_view line, const RecordFormat& format,
                            const std::optional<ChatTemplate>& chat);

// The keys of a record and of its turns, for people.
struct KeySurvey {
  std::set<std::string> used, passed_over;
};
// Requires: parse_record takes the record.
void note_keys(std::string_view line, const RecordFormat& format, KeySurvey& survey);

// Which flags fit to the record's keys; "": none is known, or it is no JSON.
std::string flags_for(std::string_view line);

}  // namespace lockstep::data
