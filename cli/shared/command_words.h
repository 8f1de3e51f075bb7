// What a command takes on its line: read from the words that were typed, shown by --help, and
// listed for the completion of shells and for manual pages.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

enum class ValueKind { kNone, kWord, kFile, kChoice };  // kWord: nothing is known of it

struct CommandFlag {
  std::string name;  // with its dashes
  std::string help;
  ValueKind value = ValueKind::kNone;
  std::vector<std::string> choices = {};
  bool required = false;
};

struct CommandShape {
  std::string name;
  std::string what;        // it does, in a line
  std::string about = {};  // all that --help says of it; of a CLI11 command its flags apart
  bool about_has_flags = false;
  std::vector<CommandFlag> words = {};  // that are no flags, by their names for people
  std::vector<CommandFlag> flags = {};
  bool takes_config = false;             // keys of the config are flags as well (config_flags)
  bool takes_files = false;              // words that are no flags: files and folders
  std::vector<CommandShape> parts = {};  // a command of commands: those
};

// Reads argv[1] and what follows into what `app` was told of. A status: the command ends with it
// now, for it has shown its help, or said which word is wrong.
std::optional<int> parse_words(CLI::App& app, int argc, char** argv);

// The same for a command that reads its words itself: a status when they ask for `help`, in which a
// flag has a line of its own: two spaces, --name, its value, two spaces, what it does.
// `takes_config`: the keys of the config are flags of it too.
std::optional<int> show_help(const std::string& help, bool takes_config, int argc, char** argv);

// What a command takes. Requires: `run` calls one of the two above before it does anything.
CommandShape shape_of(const char* name, const char* what, int (*run)(int argc, char** argv));

}  // namespace lockstep::cli
