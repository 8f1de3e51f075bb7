#include "data/prepare/chat_jinja.h"

#include "base/check.h"
#include "base/text.h"
#include "data/prepare/chat_template_texts.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kSay = "{{- '", kSaid = "' }}\n";

std::string in_quotes(const std::string& words) {
  std::string out;
  for (const char c : words) out += c == '\'' || c == '\\' ? text('\\', c) : std::string(1, c);
  return out;
}

}  // namespace

std::string chat_template_in_jinja(const std::string& name, const Tokenizer& tokenizer) {
  const auto begin = tokenizer.decode(tokenizer.begin_of_document(), /*show_special=*/true);
  LOCKSTEP_CHECK(begin.ok(), "the tokenizer does not know its own tokens");
  const std::string line = begin.value().empty() ? "" : text(kSay, in_quotes(begin.value()), kSaid);
  for (const ChatTemplateText& known : chat_template_texts())
    if (name == known.name) return line + known.jinja;
  LOCKSTEP_CHECK(false, "no text of the chat template ", name);
  return "";
}

}  // namespace lockstep::data
