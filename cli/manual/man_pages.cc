#include "cli/manual/man_pages.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>

#include "base/text.h"
#include "cli/completion/completion_script.h"
#include "data/tokenizer/unicode.h"

namespace lockstep::cli {
namespace {

constexpr const char* kProgram = "lockstep";

std::string upper(std::string words) {
  std::transform(words.begin(), words.end(), words.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return words;
}

std::string head(const std::string& name, const std::string& what, const std::string& version) {
  return text(".TH \"", upper(roff_text(name)), "\" 1 \"\" \"lockstep ", roff_text(version),
              "\" \"Lockstep\"\n.SH NAME\n", roff_text(name), " \\- ", roff_text(what), "\n");
}

std::string synopsis(const std::string& words, const CommandShape& shape) {
  std::string out = text("\\fB", roff_text(words), "\\fR [\\fIOPTION\\fR...]");
  for (const CommandFlag& word : shape.words)
    out += text(" ", word.required ? "" : "[", "\\fI", roff_text(word.name), "\\fR",
                word.required ? "" : "]");
  if (shape.words.empty() && shape.takes_files) out += " [\\fIWORD\\fR...]";
  return out + "\n";
}

// As it stands, line by line.
std::string as_it_is(const std::string& about) {
  const size_t end = about.find_last_not_of('\n');
  return end == about.npos ? "" : text(".nf\n", roff_text(about.substr(0, end + 1)), "\n.fi\n");
}

std::string entry(const CommandFlag& flag) {
  std::string value;
  for (const std::string& choice : flag.choices) value += (value.empty() ? "" : "|") + choice;
  if (value.empty() && flag.value != ValueKind::kNone)
    value = flag.value == ValueKind::kFile ? "PATH" : "VALUE";
  return text(".TP\n\\fB", roff_text(flag.name), "\\fR",
              value.empty() ? "" : text(" \\fI", roff_text(value), "\\fR"), "\n",
              roff_text(flag.help.empty() ? "(no words)" : flag.help), "\n");
}

std::string entries(const char* title, const std::vector<CommandFlag>& flags) {
  std::string out;
  for (const CommandFlag& flag : flags) out += entry(flag);
  return out.empty() ? "" : text(".SH ", title, "\n", out);
}

// The page of a command without its head: what it takes and does, and its parts'.
std::string body(const CommandShape& shape) {
  std::string out = ".SH SYNOPSIS\n" + synopsis(text(kProgram, " ", shape.name), shape);
  for (const CommandShape& part : shape.parts)
    out += ".br\n" + synopsis(text(kProgram, " ", shape.name, " ", part.name), part);
  out += ".SH DESCRIPTION\n" + as_it_is(shape.about.empty() ? shape.what : shape.about);
  if (!shape.about_has_flags) {
    std::vector<CommandFlag> all = shape.words;
    all.insert(all.end(), shape.flags.begin(), shape.flags.end());
    out += entries("OPTIONS", all);
  }
  for (const CommandShape& part : shape.parts) {
    std::vector<CommandFlag> all = part.words;
    all.insert(all.end(), part.flags.begin(), part.flags.end());
    out += text(".SH \"", upper(roff_text(shape.name + " " + part.name)), "\"\n",
                as_it_is(part.about), entries("OPTIONS", all));
  }
  return out;
}

std::string see_also(const std::vector<CommandShape>& commands, const std::string& but) {
  std::string out;
  for (const CommandShape& command : commands)
    if (command.name != but)
      out += text(out.empty() ? "" : ",\n", "\\fB", kProgram, "\\-", command.name, "\\fR(1)");
  return ".SH SEE ALSO\n" + out + "\n";
}

}  // namespace

std::string roff_text(std::string_view text) {
  std::string out;
  bool line_begins = true;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const data::CodePoint character = data::code_point_at(at, end);
    const uint32_t c = character.value;
    at += character.bytes;
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '"') {
      out += "\\(dq";
    } else if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      char escape[16];
      std::snprintf(escape, sizeof escape, "\\[u%04X]", c);
      out += escape;
    }
  }
  return out;
}

std::vector<ManPage> man_pages(const std::vector<CommandShape>& commands,
                               const std::string& version) {
  std::string overview =
      head(kProgram, "fault-tolerant training of large language models", version) +
      ".SH SYNOPSIS\n\\fBlockstep\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.SH COMMANDS\n";
  for (const CommandShape& command : commands)
    overview +=
        text(".TP\n\\fBlockstep\\-", command.name, "\\fR(1)\n", roff_text(command.what), "\n");
  std::vector<ManPage> pages{{text(kProgram, ".1"), std::move(overview)}};
  for (const CommandShape& command : commands) {
    const std::string name = text(kProgram, "-", command.name);
    std::string page = head(name, command.what, version) + body(command);
    if (command.name == "train") page += entries("CONFIG KEYS", key_flags());
    pages.push_back({name + ".1", page + see_also(commands, command.name)});
  }
  return pages;
}

}  // namespace lockstep::cli
