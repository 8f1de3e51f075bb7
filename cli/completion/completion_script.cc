#include "cli/completion/completion_script.h"

#include <algorithm>

#include "config/config.h"

namespace lockstep::cli {

std::vector<CommandFlag> key_flags() {
  std::vector<CommandFlag> flags;
  for (ConfigFlag& key : config_flags()) {
    CommandFlag flag{.name = "--" + key.name, .help = key.help, .choices = key.words};
    if (!key.is_bool) flag.value = key.is_text ? ValueKind::kFile : ValueKind::kWord;
    if (!key.words.empty()) flag.value = ValueKind::kChoice;
    flags.push_back(flag);
    // A short name is written either way: --batch_size, --nproc-per-node.
    const bool is_short = key.name.find('.') == std::string::npos;
    std::replace(flag.name.begin(), flag.name.end(), '_', '-');
    if (is_short && flag.name != flags.back().name) flags.push_back(std::move(flag));
  }
  return flags;
}

std::vector<NamedShape> all_shapes(const std::vector<CommandShape>& commands) {
  std::vector<NamedShape> all;
  for (const CommandShape& command : commands) {
    all.push_back({command.name, &command});
    for (const CommandShape& part : command.parts)
      all.push_back({command.name + " " + part.name, &part});
  }
  return all;
}

}  // namespace lockstep::cli
