#include "cli/convert/convert_command.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "base/file_system.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/convert/convert_config.h"
#include "cli/shared/command_words.h"
#include "cli/shared/exit_status.h"
#include "cli/shared/python_tools.h"
#include "config/foreign_keys.h"
#include "config/toml_json.h"
#include "launcher/host/pipe.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kYamlTimeoutMs = 60'000;
constexpr const char* kReadYaml =
    "import json, sys, yaml\n"
    "print(json.dumps(yaml.safe_load(sys.stdin.read()), default=str))\n";
constexpr int kNoYaml = 3;
constexpr const char* kHasYaml =
    "import sys\n"
    "try:\n    import yaml\n"
    "except ImportError:\n    sys.exit(3)\n";

constexpr const char* kConvertAbout =
    R"(Prints another tool's config as a config of lockstep: torchtitan's TOML (0.1 to 0.2.2), YAML
of axolotl, accelerate and TRL, JSON of DeepSpeed, and nanoGPT's keys as TOML.

What the file leaves out, and does otherwise there, is written with the tool's default. A comment
line names each thing that has no counterpart, and why. YAML is read by python3 with its module
yaml. The data, the tokenizer and the model's folder are not converted: see `lockstep prepare`.

Examples:
  lockstep convert-config llama3_8b.toml > run.toml
  lockstep convert-config sft.yaml --ranks 8 > run.toml
  lockstep convert-config ds_config.json --from DeepSpeed
)";

struct Words {
  std::string file;
  ConvertOptions options;
};

Result<std::string> yaml_as_json(const std::string& path) {
  LOCKSTEP_TRY(const std::string contents, read_stream(path));
  LOCKSTEP_TRY(const auto python, python_program());
  LOCKSTEP_TRY(const auto there,
               launcher::run_program(python, {"-c", kHasYaml}, "", kYamlTimeoutMs));
  if (there.exit_status == kNoYaml)
    return Error{Code::kConfig,
                 text(path, ": YAML is read by Python, and ", python.string(),
                      " has no module yaml: install PyYAML (Debian: python3-yaml), or convert "
                      "the file to JSON")};
  LOCKSTEP_TRY(const auto read,
               launcher::run_program(python, {"-c", kReadYaml}, contents, kYamlTimeoutMs));
  if (read.exit_status != 0)
    return Error{Code::kConfig,
                 text(path, ": Python's yaml cannot read it; what it says is above")};
  return read.standard_output;
}

Result<std::string> as_json(const std::string& path) {
  const std::string kind = std::filesystem::path(path).extension().string();
  if (kind == ".json") return read_stream(path);
  if (kind == ".yaml" || kind == ".yml") return yaml_as_json(path);
  if (kind == ".py")
    return Error{Code::kConfig, text(path,
                                     ": Python is not run; write its values as TOML, one "
                                     "`key = value` a line")};
  return toml_as_json(path);
}

Result<int> convert(const Words& words) {
  LOCKSTEP_TRY(const std::string json, as_json(words.file));
  LOCKSTEP_TRY(const ConvertedConfig converted, convert_config(json, words.file, words.options));
  std::cout << converted.toml;
  std::cerr << "lockstep convert-config: " << words.file << " is a config of " << converted.tool
            << ": " << counted(converted.taken, "key") << " taken, " << converted.needless
            << " needless, " << converted.without << " without a counterpart (comments)\n";
  if (!converted.wrong_words.empty())
    log_warning("a run with it would be refused: ", converted.wrong_words);
  return 0;
}

}  // namespace

int convert_command(int argc, char** argv) {
  Words words;
  std::vector<std::string> tools;
  for (const ForeignTool& tool : foreign_tools()) tools.push_back(tool.name);
  CLI::App app{kConvertAbout, "lockstep convert-config"};
  app.add_option("FILE", words.file, "TOML, YAML or JSON, by its ending")->required();
  app.add_option("--from", words.options.tool, "Whose config it is; else the one with most keys")
      ->check(CLI::IsMember(tools));
  app.add_option("--ranks", words.options.ranks,
                 "Ranks of the run there: a batch that is a rank's is multiplied with them")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  if (const auto end = parse_words(app, argc, argv)) return *end;
  const Result<int> status = convert(words);
  if (status.ok()) return status.value();
  log_error(status.error().message);
  return status_of_input(status.error().code);
}

}  // namespace lockstep::cli
