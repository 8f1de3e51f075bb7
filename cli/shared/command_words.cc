#include "cli/shared/command_words.h"

#include <algorithm>
#include <iostream>
#include <regex>
#include <sstream>
#include <string_view>

#include "base/result.h"
#include "base/text.h"
#include "config/config.h"

namespace lockstep::cli {
namespace {

// While it is not null a command is asked what it takes, and is not run.
CommandShape* asked = nullptr;

// Of a check that takes some words alone: "{float32,bfloat16}", "value in {step->0,tokens->1} …".
std::vector<std::string> choices_of(const std::string& type) {
  const size_t open = type.find('{'), close = type.find('}');
  std::vector<std::string> choices;
  if (open == std::string::npos || close == std::string::npos) return choices;
  for (const std::string& each : split(type.substr(open + 1, close - open - 1), ','))
    choices.push_back(each.substr(0, each.find("->")));
  return choices;
}

bool names_files(const std::string& type) {
  for (const char* word : {"TEXT", "DIR", "FILE", "FOLDER", "RESULTS"})
    if (type.find(word) != std::string::npos) return true;
  return false;
}

CommandFlag flag_of(const CLI::Option& option) {
  CommandFlag flag{.name = "--" + option.get_lnames().front(), .help = option.get_description()};
  if (option.get_items_expected_max() == 0) return flag;
  const std::string type = option.get_type_name();
  flag.choices = choices_of(type);
  if (!flag.choices.empty())
    flag.value = ValueKind::kChoice;
  else
    flag.value = names_files(type) ? ValueKind::kFile : ValueKind::kWord;
  return flag;
}

CommandShape shape_of_app(const CLI::App& app) {
  CommandShape shape{.name = app.get_name(), .what = app.get_description()};
  shape.about = app.get_description() + "\n\n" + app.get_footer();
  shape.takes_config = shape.takes_files = app.get_allow_extras();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->nonpositional()) {
      shape.takes_files = true;
      const bool several = option->get_items_expected_max() > 1;
      shape.words.push_back({.name = option->get_name(true) + (several ? "..." : ""),
                             .help = option->get_description(),
                             .required = option->get_required()});
    }
    if (option->nonpositional() && !option->get_lnames().empty())
      shape.flags.push_back(flag_of(*option));
  }
  for (const CLI::App* part : app.get_subcommands([](const CLI::App*) { return true; }))
    shape.parts.push_back(shape_of_app(*part));
  return shape;
}

// As the config's flags are named.
std::string with_underscores(std::string name) {
  std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

bool is_key(const CommandFlag& flag) {
  const auto keys = config_flags();
  return std::any_of(keys.begin(), keys.end(), [&](const ConfigFlag& key) {
    return "--" + key.name == with_underscores(flag.name);
  });
}

// "  --out FOLDER   where all goes" is a flag with a value; a line of names alone is flags of
// another program, which are passed on.
std::vector<CommandFlag> flags_of_help(const std::string& help) {
  static const std::regex described(R"(  (--[a-z][\w.-]*)( [^ ]\S*)?  +(\S.*))");
  static const std::regex names(R"( ( --[a-z][a-z-]*)+)");
  std::vector<CommandFlag> flags;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    std::smatch parts;
    if (std::regex_match(line, parts, described)) {
      const std::string value = parts[2];
      flags.push_back({.name = parts[1], .help = parts[3]});
      if (!value.empty())
        flags.back().value = names_files(value) ? ValueKind::kFile : ValueKind::kWord;
    } else if (std::regex_match(line, names)) {
      for (const std::string& name : split(line, ' '))
        if (!name.empty()) flags.push_back({.name = name, .help = "sbatch's or srun's"});
    }
  }
  return flags;
}

bool asks_for_help(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc,
                     [](const std::string_view word) { return word == "--help" || word == "-h"; });
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// "--keep-latest, --keep-every or --keep-best" for --keep; "" when no name begins so.
std::string longer_names(const std::string& word, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& name : names)
    if (name.starts_with(word + "-")) found.push_back(name);
  std::string out;
  for (size_t i = 0; i < found.size(); ++i)
    out += (i == 0 ? "" : i + 1 == found.size() ? " or " : ", ") + found[i];
  return out;
}

// What the first option is for that `app`, or the part of it that was chosen, lacks; "": none is
// lacking. `command`: how it is called.
std::string missing_option(const CLI::App& app, const std::string& command) {
  for (const CLI::App* part : app.get_subcommands())
    if (std::string wrong = missing_option(*part, command + " " + part->get_name()); !wrong.empty())
      return wrong;
  for (const CLI::Option* option : app.get_options())
    if (option->get_required() && option->count() == 0)
      return text(command, ": ", option->get_name(), " is required (", option->get_description(),
                  "). See `", command, " --help`");
  return "";
}

// What is wrong with the first word that `app`, or the part of it that was chosen, does not know;
// "": it knows all of them. `command`: how it is called.
std::string unknown_word(const CLI::App& app, const std::string& command) {
  for (const CLI::App* part : app.get_subcommands())
    if (std::string wrong = unknown_word(*part, command + " " + part->get_name()); !wrong.empty())
      return wrong;
  if (app.get_allow_extras()) return "";
  const auto parts = app.get_subcommands([](const CLI::App*) { return true; });
  for (const std::string& word : app.remaining()) {
    const bool is_flag = word.starts_with("-"), is_part = !is_flag && !parts.empty();
    std::vector<std::string> names = is_flag ? flags_of(app) : std::vector<std::string>();
    for (const CLI::App* part : parts)
      if (is_part) names.push_back(part->get_name());
    const std::string name = word.substr(0, word.find('='));
    const std::string longer = is_flag ? longer_names(name, names) : "";
    const std::string meant = longer.empty() ? nearest(name, names) : longer;
    return text(command, ": ",
                is_flag   ? text(word, ": unknown option")
                : is_part ? text("no command \"", word, "\"")
                          : text("\"", word, "\" is an unexpected argument"),
                meant.empty() ? "." : text("; did you mean ", meant, "?"), " See `", command,
                " --help`");
  }
  return "";
}

}  // namespace

std::optional<int> parse_words(CLI::App& app, int argc, char** argv) {
  if (asked != nullptr) {
    *asked = shape_of_app(app);
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const bool is_wrong = e.get_exit_code() != 0;
    const std::string name = app.get_name();  // "lockstep plan", with its words behind or without
    const std::string command = name.substr(0, name.find(' ', name.find(' ') + 1));
    std::string wrong = is_wrong ? unknown_word(app, command) : "";
    if (wrong.empty() && e.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError))
      wrong = missing_option(app, command);
    if (!wrong.empty())
      std::cerr << wrong << "\n";
    else
      app.exit(e);
    return is_wrong ? exit_status(Code::kConfig) : 0;
  }
  return std::nullopt;
}

std::optional<int> show_help(const std::string& help, bool takes_config, int argc, char** argv) {
  if (asked != nullptr) {
    asked->flags = flags_of_help(help);
    asked->about = help;
    asked->about_has_flags = true;
    asked->flags.push_back({.name = "--help", .help = "says what the command does"});
    if (takes_config) std::erase_if(asked->flags, is_key);
    asked->takes_config = takes_config;
    asked->takes_files = true;
    return 0;
  }
  if (!asks_for_help(argc, argv)) return std::nullopt;
  std::cout << help;
  return 0;
}

CommandShape shape_of(const char* name, const char* what, int (*run)(int argc, char** argv)) {
  CommandShape shape;
  std::string word = name;
  char* argv[] = {word.data(), nullptr};
  asked = &shape;
  run(1, argv);
  asked = nullptr;
  shape.name = name;
  shape.what = what;
  return shape;
}

}  // namespace lockstep::cli
