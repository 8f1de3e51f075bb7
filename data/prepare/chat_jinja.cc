#include "data/prepare/chat_jinja.h"

#include "base/check.h"
#include "base/text.h"
#include "data/prepare/chat_template_texts.h"

namespace lockstep::data {
namespace {

constexpr const char* kBegin = "bos_token";  // as the texts call them
constexpr const char* kEnd = "eos_token";
constexpr const char* kEndOfTurn = "</s>";  // of the families whose texts say eos_token

std::string set_line(const char* name) { return text("{%- set ", name, " = '"); }
constexpr std::string_view kSetEnd = "' %}\n", kSayLine = "{{- '", kSayEnd = "' -}}\n";

std::string in_quotes(const std::string& words) {
  std::string out;
  for (const char c : words) out += c == '\'' || c == '\\' ? text('\\', c) : std::string(1, c);
  return out;
}

// Whether there is nothing but lines that chat_template_in_jinja puts before a text.
bool are_lines_before(std::string_view lines) {
  const std::string begin = set_line(kBegin), end = set_line(kEnd);
  while (!lines.empty()) {
    const size_t length = lines.find('\n') + 1;  // 0: no line's end
    const std::string_view line = lines.substr(0, length);
    const bool sets = (line.starts_with(begin) || line.starts_with(end)) && line.ends_with(kSetEnd);
    if (!sets && !(line.starts_with(kSayLine) && line.ends_with(kSayEnd))) return false;
    lines.remove_prefix(length);
  }
  return true;
}

}  // namespace

std::string chat_template_in_jinja(const std::string& name, const Tokenizer& tokenizer) {
  const auto begin = tokenizer.decode(tokenizer.begin_of_document(), /*show_special=*/true);
  LOCKSTEP_CHECK(begin.ok(), "the tokenizer does not know its own tokens");
  for (const ChatTemplateText& known : chat_template_texts()) {
    if (name != known.name) continue;
    const std::string body = known.jinja;
    std::string lines;
    if (body.find(kBegin) != body.npos)
      lines += text(set_line(kBegin), in_quotes(begin.value()), kSetEnd);
    else if (!begin.value().empty())
      lines += text(kSayLine, in_quotes(begin.value()), kSayEnd);
    if (body.find(kEnd) != body.npos) lines += text(set_line(kEnd), kEndOfTurn, kSetEnd);
    return lines + body;
  }
  LOCKSTEP_CHECK(false, "no text of the chat template ", name);
  return "";
}

std::string name_of_written_template(std::string_view jinja) {
  for (const ChatTemplateText& known : chat_template_texts()) {
    const std::string_view body = known.jinja;
    if (jinja.ends_with(body) && are_lines_before(jinja.substr(0, jinja.size() - body.size())))
      return known.name;
  }
  return "";
}

}  // namespace lockstep::data
