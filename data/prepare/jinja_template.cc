#include "data/prepare/jinja_template.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "data/prepare/jinja_script.h"

namespace lockstep::data {

namespace {

using nlohmann::ordered_json;

constexpr std::string_view kPrefix = "jinja:";
constexpr const char* kWhiteSpace = " \t\r\n";

ordered_json call_as_json(const ToolCall& call) {
  ordered_json json = {
      {"type", "function"},
      {"function", {{"name", call.name}, {"arguments", parse_json<ordered_json>(call.arguments)}}}};
  if (!call.id.empty()) json["id"] = call.id;
  return json;
}

// As a program that calls apply_chat_template would have it.
ordered_json message_as_json(const Message& message) {
  ordered_json json = {{"role", message.role}};
  if (message.content_is == ContentIs::kText) json["content"] = message.content;
  if (message.content_is == ContentIs::kNull) json["content"] = nullptr;
  for (const ToolCall& call : message.calls) json["tool_calls"].push_back(call_as_json(call));
  if (!message.call_id.empty()) json["tool_call_id"] = message.call_id;
  if (!message.name.empty()) json["name"] = message.name;
  if (message.thought) json["reasoning_content"] = *message.thought;
  return json;
}

std::string request(const Conversation& chat, const char* wanted) {
  ordered_json json = {{"messages", ordered_json::array()}, {"tools", nullptr}, {"wanted", wanted}};
  for (const Message& message : chat.messages) json["messages"].push_back(message_as_json(message));
  for (const std::string& tool : chat.tools)
    json["tools"].push_back(parse_json<ordered_json>(tool));
  return dump_json(json);
}

// What the script answers, or why not.
Result<ordered_json> answer_in(const std::string& line) {
  auto answer = parse_json<ordered_json>(line, /*allow_exceptions=*/false);
  if (!answer.is_object())
    return Error{Code::kBug, "the Python that renders the chat template answers no JSON object"};
  if (!answer.contains("refused")) return answer;
  return Error{Code::kConfig, answer["refused"].get<std::string>()};
}

// Where a learnt part ends, without the white space after the token that ends an answer.
size_t end_of(const RenderedChat& chat, size_t begin, size_t end, const std::string& token) {
  if (chat.blocks || token.empty()) return end;
  const std::string_view part = std::string_view(chat.text).substr(begin, end - begin);
  const size_t last = part.find_last_not_of(kWhiteSpace);
  return last != part.npos && part.substr(0, last + 1).ends_with(token) ? begin + last + 1 : end;
}

}  // namespace

Result<std::shared_ptr<const JinjaTemplate>> JinjaTemplate::create(FolderTemplate source,
                                                                   std::string date,
                                                                   PythonStarter start,
                                                                   JinjaLimits limits) {
  std::shared_ptr<JinjaTemplate> made(new JinjaTemplate());
  made->source_ = std::move(source);
  made->date_ = std::move(date);
  made->start_ = std::move(start);
  made->limits_ = limits;
  LOCKSTEP_TRY(auto first, made->started());
  made->idle_.push_back(std::move(first));
  return std::shared_ptr<const JinjaTemplate>(std::move(made));
}

std::string JinjaTemplate::name() const {
  const std::string all = text(source_.jinja, '\0', source_.tokens);
  return text(kPrefix, hex64(xxh3_64(all)), date_.empty() ? "" : ":", date_);
}

std::optional<std::string> JinjaTemplate::date_in(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const size_t colon = name.find(':', kPrefix.size());
  return colon == name.npos ? "" : name.substr(colon + 1);
}

Result<std::unique_ptr<LineAnswers>> JinjaTemplate::started() const {
  LOCKSTEP_TRY(auto python, start_(kJinjaScript));
  const ordered_json setup = {{"template", source_.jinja},
                              {"tokens", parse_json<ordered_json>(source_.tokens)},
                              {"date", date_.empty() ? ordered_json() : ordered_json(date_)},
                              {"cpu_s", limits_.cpu_s},
                              {"memory_mib", limits_.memory_mib},
                              {"text_bytes", limits_.text_bytes}};
  LOCKSTEP_TRY(const std::string line, python->ask(dump_json(setup)));
  const auto answer = answer_in(line);
  if (!answer.ok()) return answer.error().in(source_.file.string());
  return python;
}

Result<RenderedChat> JinjaTemplate::ask(const Conversation& chat, const char* wanted) const {
  std::unique_ptr<LineAnswers> python;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      python = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (python == nullptr) {
    LOCKSTEP_TRY(python, started());
  }
  const auto line = python->ask(request(chat, wanted));
  if (!line.ok())  // this Python is not asked again
    return Error{Code::kConfig,
                 text("the Python that renders the chat template gave no answer (",
                      line.error().message, "); a rendering may take ", limits_.cpu_s,
                      " s of CPU time and ", limits_.memory_mib, " MiB of memory")};
  const auto answer = answer_in(line.value());
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(python));
  }
  if (!answer.ok()) return answer.error();
  RenderedChat rendered{answer.value()["text"].get<std::string>(), {}, answer.value()["blocks"]};
  for (const auto& pair : answer.value()["learnt"])
    rendered.learnt.emplace_back(pair[0].get<size_t>(), pair[1].get<size_t>());
  return rendered;
}

Result<RenderedChat> JinjaTemplate::render(const Conversation& chat) const {
  return ask(chat, "answers");
}

Result<std::string> JinjaTemplate::text_of(const Conversation& chat, bool is_prompt) const {
  LOCKSTEP_TRY(RenderedChat rendered, ask(chat, is_prompt ? "prompt" : "text"));
  return std::move(rendered.text);
}

Result<std::vector<Passage>> passages_of(const RenderedChat& chat,
                                         const std::string& end_of_answer) {
  std::vector<Passage> passages;
  const auto add = [&](size_t begin, size_t end, bool in_loss) {
    LOCKSTEP_CHECK(begin <= end && end <= chat.text.size(), "bytes ", begin, " to ", end, " of ",
                   chat.text.size());
    if (begin < end)
      passages.push_back({.words = chat.text.substr(begin, end - begin),
                          .in_loss = in_loss,
                          .names = SpecialNames::kAreTokens,
                          .joins = !passages.empty(),
                          .begins_document = passages.empty()});
  };
  size_t at = 0;
  for (const auto& [first, last] : chat.learnt) {
    const size_t begin = std::max(first, at);
    const size_t end = std::max(begin, end_of(chat, begin, std::max(begin, last), end_of_answer));
    add(at, begin, false);
    add(begin, end, true);
    at = end;
  }
  add(at, chat.text.size(), false);
  if (std::any_of(passages.begin(), passages.end(), [](const Passage& p) { return p.in_loss; }))
    return passages;
  return Error{Code::kConfig, "the chat template writes nothing of what the assistant says"};
}

}  // namespace lockstep::data
