#include "base/text.h"
#include "cli/completion/completion_script.h"

namespace lockstep::cli {
namespace {

constexpr const char* kFishBegin =
    R"(# Completion of lockstep for fish, as `lockstep completion fish` writes it.
# Whether the line begins with these words; and has no other word.
function __lockstep_at
    set -l words (commandline -opc)
    set -e words[1]
    for i in (seq (count $argv))
        test "$words[$i]" = $argv[$i]; or return 1
    end
end
function __lockstep_first
    test (count (commandline -opc)) -eq (math 1 + (count $argv)); and __lockstep_at $argv
end
function __lockstep_keys
    set -l words (commandline -opc)
    test (count $words) -gt 1; and contains -- $words[2] @CONFIG@
end
complete -c lockstep -f
complete -c lockstep -n __lockstep_first -l version -d 'says what this build is'
)";

// A string of fish: in single quotes \ and ' have a \ before them.
std::string quoted(const std::string& words) {
  std::string out = "'";
  for (const char c : words) out += (c == '\'' || c == '\\' ? "\\" : "") + std::string(1, c);
  return out + "'";
}

std::string flag_lines(const std::string& when, const std::vector<CommandFlag>& flags) {
  std::string out;
  for (const CommandFlag& flag : flags) {
    out += text("complete -c lockstep -n ", quoted(when), " -l ", flag.name.substr(2));
    std::string choices;
    for (const std::string& choice : flag.choices) choices += (choices.empty() ? "" : " ") + choice;
    if (flag.value == ValueKind::kWord) out += " -x";
    if (flag.value == ValueKind::kFile) out += " -r -F";
    if (flag.value == ValueKind::kChoice) out += text(" -x -a ", quoted(choices));
    out += text(" -d ", quoted(flag.help), "\n");
  }
  return out;
}

}  // namespace

std::string fish_completion(const std::vector<CommandShape>& commands) {
  std::string lines, takes_config;
  for (const CommandShape& command : commands) {
    lines += text("complete -c lockstep -n __lockstep_first -a ", command.name, " -d ",
                  quoted(command.what), "\n");
    if (command.takes_config) takes_config += (takes_config.empty() ? "" : " ") + command.name;
    for (const CommandShape& part : command.parts)
      lines += text("complete -c lockstep -n ", quoted("__lockstep_first " + command.name), " -a ",
                    part.name, " -d ", quoted(part.what), "\n");
  }
  for (const auto& [words, shape] : all_shapes(commands)) {
    const std::string when = "__lockstep_at " + words;
    lines += flag_lines(when, shape->flags);
    if (shape->takes_files) lines += text("complete -c lockstep -n ", quoted(when), " -F\n");
  }
  lines += flag_lines("__lockstep_keys", key_flags());
  std::string out = kFishBegin;
  const std::string mark = "@CONFIG@";
  return out.replace(out.find(mark), mark.size(), takes_config) + lines;
}

}  // namespace lockstep::cli
