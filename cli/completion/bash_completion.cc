#include <algorithm>

#include "base/text.h"
#include "cli/completion/completion_script.h"

namespace lockstep::cli {
namespace {

// Around the tables: $command is the words of the command, $flag the flag whose value is asked for.
// readline cuts words at "=", so --key=value is three of them.
constexpr const char* kBashBegin =
    R"(# Completion of lockstep for bash, as `lockstep completion bash` writes it.
_lockstep() {
  local current=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD - 1]} command= words= files=
  if [[ $flag == = ]]; then flag=${COMP_WORDS[COMP_CWORD - 2]}; fi
  if [[ $current == = ]]; then current=; fi
  if ((COMP_CWORD > 1)); then command=${COMP_WORDS[1]}; fi
  case $command in
)";
constexpr const char* kBashEnd = R"(  esac
  COMPREPLY=()
  if [[ -n $words ]]; then COMPREPLY=($(compgen -W "$words" -- "$current")); fi
  if [[ -n $files && $current != -* ]]; then
    compopt -o filenames 2>/dev/null
    local IFS=$'\n'
    COMPREPLY+=($(compgen -f -- "$current"))
  fi
}
complete -F _lockstep lockstep
)";

std::string names(const std::vector<CommandShape>& commands) {
  std::string all;
  for (const CommandShape& each : commands) all += (all.empty() ? "" : " ") + each.name;
  return all;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : between) + word;
  return all;
}

// A line of the case over "$command $flag" for each flag that has a value.
std::string bash_value_cases(const std::string& command, const std::vector<CommandFlag>& flags) {
  std::string cases;
  std::vector<std::string> files, others;
  for (const CommandFlag& flag : flags) {
    const std::string pattern = text(command, "\" ", flag.name, "\"");
    if (flag.value == ValueKind::kChoice)
      cases += text("    ", pattern, ") words=\"", joined(flag.choices, " "), "\" ;;\n");
    if (flag.value == ValueKind::kFile) files.push_back(pattern);
    if (flag.value == ValueKind::kWord) others.push_back(pattern);
  }
  if (!files.empty()) cases += text("    ", joined(files, " | "), ") files=1 ;;\n");
  if (!others.empty()) cases += text("    ", joined(others, " | "), ") ;;\n");
  return cases;
}

std::string flag_names(const std::vector<CommandFlag>& flags) {
  std::vector<std::string> names;
  for (const CommandFlag& flag : flags) names.push_back(flag.name);
  return joined(names, " ");
}

}  // namespace

std::string bash_completion(const std::vector<CommandShape>& commands) {
  std::string out = kBashBegin, takes_config;
  for (const CommandShape& command : commands)
    if (!command.parts.empty())
      out += text("    ", command.name,
                  ") if ((COMP_CWORD > 2)); then command+=\" ${COMP_WORDS[2]}\"; fi ;;\n");
  out += "  esac\n  case $command\" $flag\" in\n";
  for (const auto& [words, shape] : all_shapes(commands))
    out += bash_value_cases(text("\"", words, "\""), shape->flags);
  out += bash_value_cases("*", key_flags());
  out += "    *) case $command in\n";
  out += text("      '') words=\"", names(commands), " --help --version\" ;;\n");
  for (const auto& [words, shape] : all_shapes(commands)) {
    out += text("      \"", words, "\") words=\"", names(shape->parts),
                shape->parts.empty() ? "" : " ", flag_names(shape->flags), "\"",
                shape->takes_files ? " files=1" : "", " ;;\n");
    if (shape->takes_config) takes_config += (takes_config.empty() ? "" : " | ") + words;
  }
  out += "    esac\n";
  out += text("    case $command in ", takes_config, ") words+=\" ", flag_names(key_flags()),
              "\" ;; esac ;;\n");
  return out + kBashEnd;
}

}  // namespace lockstep::cli
