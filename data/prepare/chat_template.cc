#include "data/prepare/chat_template.h"

#include <algorithm>

#include "base/text.h"
#include "data/prepare/chat_families.h"

namespace lockstep::data {

namespace {

std::string names_where(bool (*wanted)(const ChatFamily&)) {
  std::string names;
  for (const ChatFamily& family : chat_families())
    if (wanted(family)) names += text(names.empty() ? "" : ", ", family.name);
  return names;
}

Result<const ChatFamily*> family_of(const std::string& name) {
  for (const ChatFamily& family : chat_families())
    if (name == family.name) return &family;
  return Error{Code::kConfig,
               text("unknown chat template \"", name, "\"; known: ", ChatTemplate::known_names())};
}

Result<void> check_message(const Message& message, size_t number, const ChatFamily& family) {
  const bool is_tool = message.role == "tool";
  if (!is_tool && message.role != "system" && message.role != "user" && message.role != "assistant")
    return Error{Code::kConfig, text("message ", number, " has the role \"", message.role,
                                     "\", which is not system, user, assistant or tool (in "
                                     "\"from\" also human and gpt)")};
  if (!message.calls.empty() && message.role != "assistant")
    return Error{Code::kConfig, text("message ", number, " has the role \"", message.role,
                                     "\" and calls tools, which only the assistant may do")};
  if (family.takes_tools || (!is_tool && message.calls.empty())) return {};
  return Error{
      Code::kConfig,
      text("message ", number, " ",
           is_tool ? "has the role \"tool\"" : "has the role \"assistant\" and calls tools",
           ", which the chat template ", family.name, " does not support; use one of ",
           names_where([](const ChatFamily& f) { return f.takes_tools; }))};
}

Result<void> check(const Conversation& chat, const ChatFamily& family) {
  for (size_t i = 0; i < chat.messages.size(); ++i)
    LOCKSTEP_RETURN_IF_ERROR(check_message(chat.messages[i], i + 1, family));
  if (!chat.tools.empty() && !family.takes_tools)
    return Error{Code::kConfig,
                 text("\"tools\" are given, which the chat template ", family.name,
                      " does not support; use one of ",
                      names_where([](const ChatFamily& f) { return f.takes_tools; }))};
  return {};
}

bool is_assistant(const Message& message) { return message.role == "assistant"; }

// The last special token of what is learnt of an answer; else the end of a document.
uint32_t end_of_answer_of(const JinjaTemplate& jinja, const Tokenizer& tokenizer) {
  const auto rendered = jinja.render({{{"user", "a"}, {"assistant", "b"}}});
  std::vector<uint32_t> ids;
  if (rendered.ok() && !rendered.value().learnt.empty()) {
    const auto& [begin, end] = rendered.value().learnt.back();
    const auto words = std::string_view(rendered.value().text).substr(begin, end - begin);
    if (!tokenizer.encode(words, ids).ok()) ids.clear();
  }
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
    const auto shown = tokenizer.decode({&*id, 1}), name = tokenizer.decode({&*id, 1}, true);
    if (shown.ok() && name.ok() && shown.value().empty() && !name.value().empty()) return *id;
  }
  return tokenizer.end_of_document();
}

}  // namespace

Result<void> leave_out_unlearnt(const Conversation& chat, std::vector<Passage>& passages) {
  std::vector<bool> learnt;  // of each answer
  for (const Message& message : chat.messages)
    if (is_assistant(message)) learnt.push_back(message.learnt);
  if (std::find(learnt.begin(), learnt.end(), false) == learnt.end()) return {};
  size_t answers = 0;
  for (size_t i = 0; i < passages.size(); ++i)
    answers += passages[i].in_loss && (i == 0 || !passages[i - 1].in_loss);
  if (answers != learnt.size())
    return Error{Code::kConfig,
                 "a turn is not to be learnt, and the chat template puts nothing between it and "
                 "another answer"};
  bool was_in_loss = false;
  size_t begun = 0;  // answers
  for (Passage& passage : passages) {
    begun += passage.in_loss && !was_in_loss;
    was_in_loss = passage.in_loss;
    passage.in_loss = passage.in_loss && learnt[begun - 1];
  }
  return {};
}

std::string ChatTemplate::known_names() {
  return names_where([](const ChatFamily&) { return true; });
}

Result<std::vector<std::string>> ChatTemplate::token_names(const std::string& name) {
  LOCKSTEP_TRY(const ChatFamily* const family, family_of(name));
  return std::vector<std::string>(family->tokens.begin(), family->tokens.end());
}

Result<ChatTemplate> ChatTemplate::create(const std::string& name, const Tokenizer& tokenizer,
                                          std::shared_ptr<const JinjaTemplate> jinja) {
  ChatTemplate made;
  made.jinja_ = std::move(jinja);
  if (made.jinja_ != nullptr && name == made.jinja_->name()) {
    made.end_of_answer_ = end_of_answer_of(*made.jinja_, tokenizer);
  } else {
    LOCKSTEP_TRY(made.family_, family_of(name));
    for (const char* const each : made.family_->tokens) {
      const auto id = tokenizer.special_id(each);
      if (!id)
        return Error{Code::kConfig,
                     text("the chat template ", name, " needs the token ", each,
                          ", which the tokenizer (", tokenizer.name(), ") does not have")};
      made.tokens_[each] = *id;
    }
    for (const char* const each : made.family_->tool_tokens)
      if (const auto id = tokenizer.special_id(each)) made.tokens_[each] = *id;
    made.end_of_answer_ = made.tokens_.at(made.family_->end_of_answer);
  }
  LOCKSTEP_TRY(made.end_name_, tokenizer.decode({&made.end_of_answer_, 1}, /*show_special=*/true));
  return made;
}

Result<std::vector<Passage>> ChatTemplate::by_family(const Conversation& chat,
                                                     bool is_prompt) const {
  LOCKSTEP_RETURN_IF_ERROR(check(chat, *family_));
  ChatWriter out(tokens_);
  LOCKSTEP_RETURN_IF_ERROR(family_->write(chat, out));
  if (is_prompt) family_->open_answer(out);
  if (out.missing().empty()) return out.take();
  return Error{Code::kConfig,
               text("the tools of the chat template ", family_->name, " need the token ",
                    out.missing(), ", which the tokenizer does not have")};
}

Result<std::vector<Passage>> ChatTemplate::by_jinja(const Conversation& chat,
                                                    bool is_prompt) const {
  if (!is_prompt) {
    LOCKSTEP_TRY(const RenderedChat rendered, jinja_->render(chat));
    return passages_of(rendered, end_name_);
  }
  LOCKSTEP_TRY(std::string words, jinja_->text_of(chat, is_prompt));
  return std::vector<Passage>{
      {.words = std::move(words), .names = SpecialNames::kAreTokens, .begins_document = true}};
}

Result<std::vector<Passage>> ChatTemplate::written(const Conversation& chat, bool is_prompt) const {
  if (family_ == nullptr) return by_jinja(chat, is_prompt);
  auto passages = by_family(chat, is_prompt);
  if (passages.ok() || jinja_ == nullptr) return passages;
  auto rendered = by_jinja(chat, is_prompt);
  return rendered.ok() ? std::move(rendered) : std::move(passages);
}

Result<std::vector<Passage>> ChatTemplate::passages(const Conversation& chat) const {
  if (std::none_of(chat.messages.begin(), chat.messages.end(), is_assistant)) {
    if (family_ != nullptr) LOCKSTEP_RETURN_IF_ERROR(check(chat, *family_));
    return Error{Code::kConfig,
                 "the conversation has no assistant message, so there is nothing to learn"};
  }
  LOCKSTEP_TRY(std::vector<Passage> passages, written(chat, /*is_prompt=*/false));
  LOCKSTEP_RETURN_IF_ERROR(leave_out_unlearnt(chat, passages));
  return passages;
}

Result<std::vector<Passage>> ChatTemplate::prompt(const Conversation& chat) const {
  return written(chat, /*is_prompt=*/true);
}

}  // namespace lockstep::data
