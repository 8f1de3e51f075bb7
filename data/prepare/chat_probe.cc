#include "data/prepare/chat_probe.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/text.h"
#include "data/prepare/chat_families.h"
#include "data/prepare/chat_jinja.h"
#include "data/prepare/chat_template.h"

namespace lockstep::data {

namespace {

using Messages = std::vector<Message>;
using Ids = std::vector<uint32_t>;

constexpr const char* kTool =
    R"({"type": "function", "function": {"name": "weather", "description": "Of a «town».", )"
    R"("parameters": {"type": "object", "properties": {"town": {"type": "string"}, )"
    R"("days": {"type": "integer", "enum": [1, 7]}}, "required": ["town"]}}})";
constexpr const char* kOtherTool =
    R"({"type": "function", "function": {"name": "time", "description": "Now", )"
    R"("parameters": {"type": "object", "properties": {}}}})";

Message user(std::string words) { return {"user", std::move(words)}; }
Message answer(std::string words) { return {"assistant", std::move(words)}; }
Message instruction(std::string words) { return {"system", std::move(words)}; }

// None holds a special token: what those in contents become differs on purpose.
const std::vector<std::string>& probe_words() {
  static const std::vector<std::string> words = {"Hi.",
                                                 "",
                                                 " ",
                                                 "  two\n lines \n\n",
                                                 "\n\té 😀\u00a0",
                                                 "a 'b' \"c\" \\n {{ d }} <e>",
                                                 "<tool_response>\nx\n</tool_response>"};
  return words;
}

void add_turns(std::vector<Conversation>& probes) {
  for (const std::string& words : probe_words()) {
    probes.push_back({{user(words), answer("b")}});
    probes.push_back({{user("a"), answer(words)}});
    probes.push_back({{instruction(words), user("a"), answer(words), user(words), answer("b")}});
  }
  const Messages turns = {instruction("Be brief."), user("a"), answer("b"), user("c"), answer("d")};
  for (size_t first : {0, 1})
    for (size_t last = first + 1; last <= turns.size(); ++last)
      probes.push_back({{turns.begin() + static_cast<ptrdiff_t>(first),
                         turns.begin() + static_cast<ptrdiff_t>(last)}});
  probes.push_back({{user("a"), user("b"), answer("c")}});
  probes.push_back({{user("a"), answer("b"), answer("c")}});
  probes.push_back({{user("a"), instruction("s"), answer("b")}});
  probes.push_back({{user("a"), answer("b"), instruction("s"), user("c"), answer("d")}});
}

void add_thoughts(std::vector<Conversation>& probes) {
  const std::string thoughts[] = {"<think>\nfirst\n</think>\n\n", "<think></think>",
                                  "\n\nso</think>\n"};
  for (const std::string& thought : thoughts) {
    probes.push_back({{user("a"), answer(thought + "b")}});
    probes.push_back({{user("a"), answer(thought + "b"), user("c"), answer(thought + " d\n")}});
  }
  Message thinks = answer("b");
  thinks.thought = "\nso\n";
  probes.push_back({{user("a"), thinks}});
  probes.push_back({{user("a"), thinks, user("c"), thinks}});
}

void add_tools(std::vector<Conversation>& probes) {
  const ToolCall warm{"weather", R"({"town": "Zürich", "days": 1})", "call00001"};
  const ToolCall late{"time", "{}", "call00002"};
  Message told{"tool", R"({"celsius": 21.5})"}, noon{"tool", " noön\n"};
  told.call_id = "call00001", noon.call_id = "call00002";
  for (const std::vector<std::string>& tools :
       {std::vector<std::string>{}, {kTool}, {kTool, kOtherTool}}) {
    probes.push_back({{user("a"), answer("b")}, tools});
    probes.push_back(
        {{instruction("Be kind."), user("a"), answer("b"), user("c"), answer("d")}, tools});
    for (const bool both : {false, true})
      for (const ContentIs content : {ContentIs::kText, ContentIs::kNull}) {
        Message asks = answer("");
        asks.content_is = content;
        asks.calls = both ? std::vector{warm, late} : std::vector{warm};
        Messages all = {user(" How warm? "), asks, told};
        if (both) all.push_back(noon);
        probes.push_back({all, tools});
        all.push_back(answer("Warm. "));
        probes.push_back({all, tools});
        all.push_back(user("Thanks."));
        all.push_back(answer("b"));
        probes.push_back({all, tools});
        all.insert(all.begin(), instruction("Be kind."));
        probes.push_back({all, tools});
      }
    Message says = answer("I look.\n");
    says.calls = {warm};
    probes.push_back({{user("a"), says, told, answer("c")}, tools});
  }
}

const std::vector<Conversation>& probe_conversations() {
  static const std::vector<Conversation> probes = [] {
    std::vector<Conversation> made;
    add_turns(made);
    add_thoughts(made);
    add_tools(made);
    return made;
  }();
  return probes;
}

// A conversation as one of the two texts of it, and its ids by the template; none: it is refused.
struct Probe {
  const Conversation* chat;
  bool is_prompt;
  std::optional<Ids> ids;
};

Result<std::vector<Probe>> probed(const JinjaTemplate& jinja, const Tokenizer& tokenizer) {
  std::vector<Probe> probes;
  for (const Conversation& chat : probe_conversations())
    for (const bool is_prompt : {false, true}) {
      const bool answered = chat.messages.back().role == "assistant";
      if (answered == is_prompt) continue;
      Probe probe{&chat, is_prompt, {}};
      const auto text = jinja.text_of(chat, is_prompt);
      if (!text.ok() && text.error().code != Code::kConfig) return text.error();
      if (text.ok()) {
        probe.ids.emplace();
        LOCKSTEP_RETURN_IF_ERROR(tokenizer.encode(text.value(), *probe.ids));
      }
      probes.push_back(std::move(probe));
    }
  return probes;
}

// How many probes the family takes; 0: it differs from the template in one.
Result<int> probes_taken(const ChatTemplate& family, const Tokenizer& tokenizer,
                         const std::vector<Probe>& probes) {
  int taken = 0;
  for (const Probe& probe : probes) {
    const auto passages =
        probe.is_prompt ? family.prompt(*probe.chat) : family.passages(*probe.chat);
    if (!passages.ok()) continue;
    Ids ids;
    std::vector<uint8_t> in_loss;
    LOCKSTEP_RETURN_IF_ERROR(encode_document(tokenizer, passages.value(), false, ids, in_loss));
    if (ids != probe.ids) return 0;
    ++taken;
  }
  return taken;
}

}  // namespace

Result<FoundTemplate> template_of(std::shared_ptr<const JinjaTemplate> jinja,
                                  const Tokenizer& tokenizer) {
  FoundTemplate found{jinja->name(), jinja, jinja->source().file};
  const auto first = jinja->render({{user("a"), answer("b")}});
  if (first.ok() && first.value().blocks) return found;
  LOCKSTEP_TRY(const std::vector<Probe> probes, probed(*jinja, tokenizer));
  int most = 0;
  for (const ChatFamily& each : chat_families()) {
    const auto family = ChatTemplate::create(each.name, tokenizer);
    if (!family.ok()) continue;
    LOCKSTEP_TRY(const int taken, probes_taken(family.value(), tokenizer, probes));
    if (taken > most) most = taken, found.name = each.name;
  }
  return found;
}

Result<FoundTemplate> find_chat_template(FileSystem& file_system, const std::filesystem::path& path,
                                         const Tokenizer& tokenizer, const std::string& date,
                                         const PythonStarter& start) {
  const std::string advice =
      text("; give --chat-template NAME, one of ", ChatTemplate::known_names());
  auto source = chat_template_of_folder(file_system, path);
  if (!source.ok() && source.error().code == Code::kNotFound)
    return Error{Code::kConfig, source.error().message + advice};
  if (!source.ok()) return source.error();
  for (const ChatFamily& family : chat_families())
    if (ChatTemplate::create(family.name, tokenizer).ok() &&
        source.value().jinja == chat_template_in_jinja(family.name, tokenizer))
      return FoundTemplate{family.name, nullptr, source.value().file};
  auto jinja = JinjaTemplate::create(std::move(source).value(), date, start);
  if (!jinja.ok()) return Error{jinja.error().code, jinja.error().message + advice};
  return template_of(std::move(jinja).value(), tokenizer);
}

}  // namespace lockstep::data
