#include "base/text.h"
#include "cli/completion/completion_script.h"

namespace lockstep::cli {
namespace {

constexpr const char* kZshBegin = R"(#compdef lockstep
# Completion of lockstep for zsh, as `lockstep completion zsh` writes it.
_lockstep() {
  local command= flag=$words[CURRENT-1] files=
  local -a found
  if ((CURRENT > 2)); then command=$words[2]; fi
  if [[ $words[CURRENT] == --*=* ]]; then
    flag=${words[CURRENT]%%=*}
    compset -P '*='
  fi
  case $command in
)";
constexpr const char* kZshEnd = R"(  esac
  if ((${#found})); then _describe -V 'lockstep' found; fi
  if [[ -n $files ]]; then _files; fi
}
if [[ $funcstack[1] == _lockstep ]]; then _lockstep "$@"; else compdef _lockstep lockstep; fi
)";

// 'name:help', as _describe has it.
std::string described(const std::string& name, const std::string& help) {
  std::string item;
  for (const char c : name) item += c == ':' ? std::string("\\:") : std::string(1, c);
  return shell_quoted(help.empty() ? item : item + ":" + help);
}

std::string listed(const std::vector<CommandFlag>& flags) {
  std::string out;
  for (const CommandFlag& flag : flags) out += " " + described(flag.name, flag.help);
  return out;
}

std::string zsh_value_cases(const std::string& command, const std::vector<CommandFlag>& flags) {
  std::string cases;
  for (const CommandFlag& flag : flags) {
    if (flag.value == ValueKind::kNone) continue;
    cases += text("    ", command, "' ", flag.name, "')");
    if (flag.value == ValueKind::kFile) cases += " files=1";
    if (flag.value == ValueKind::kChoice) {
      cases += " found=(";
      for (const std::string& choice : flag.choices)
        cases += (choice == flag.choices.front() ? "" : " ") + described(choice, "");
      cases += ")";
    }
    cases += " ;;\n";
  }
  return cases;
}

std::string listed(const std::vector<CommandShape>& commands) {
  std::string out;
  for (const CommandShape& each : commands) out += " " + described(each.name, each.what);
  return out;
}

}  // namespace

std::string zsh_completion(const std::vector<CommandShape>& commands) {
  std::string out = kZshBegin, takes_config;
  for (const CommandShape& command : commands)
    if (!command.parts.empty())
      out +=
          text("    ", command.name, ") if ((CURRENT > 3)); then command+=\" $words[3]\"; fi ;;\n");
  out += "  esac\n  case \"$command $flag\" in\n";
  for (const auto& [words, shape] : all_shapes(commands))
    out += zsh_value_cases(text("'", words, "'"), shape->flags);
  out += zsh_value_cases("*", key_flags());
  out += "    *) case $command in\n";
  out += text("      '') found=(", listed(commands), ") ;;\n");
  for (const auto& [words, shape] : all_shapes(commands)) {
    out += text("      '", words, "') found=(", listed(shape->parts), listed(shape->flags), ")",
                shape->takes_files ? " files=1" : "", " ;;\n");
    if (shape->takes_config) takes_config += (takes_config.empty() ? "" : " | ") + words;
  }
  out += "    esac\n";
  out += text("    case $command in ", takes_config, ") found+=(", listed(key_flags()),
              ") ;; esac ;;\n");
  return out + kZshEnd;
}

}  // namespace lockstep::cli
