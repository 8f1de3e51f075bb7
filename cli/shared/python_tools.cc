#include "cli/shared/python_tools.h"

#include "base/environment.h"
#include "base/file_system.h"
#include "base/text.h"
#include "launcher/host/pipe.h"
#include "launcher/host/process.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kStartTimeoutMs = 120'000;  // a Python of a slow folder
// From the folder of the program: a build's, a wheel's, a bundle's.
constexpr const char* kPlaces[] = {"../../../tools", "../share/tools", "../tools"};
// Prints nothing where it is too old.
constexpr const char* kWhichPython =
    "import sys; print(sys.executable if sys.version_info >= (3, 9) else '', end='')";

}  // namespace

Result<std::filesystem::path> tool_script(const std::string& name) {
  const std::filesystem::path folder = launcher::running_executable().parent_path();
  for (const char* const place : kPlaces) {
    auto script = (folder / place / name).lexically_normal();
    if (posix_file_system().exists(script)) return script;
  }
  return Error{Code::kConfig,
               text("there is no tools/", name, " for the programs in ", folder.string(),
                    ": the program was moved out of its build, wheel or bundle")};
}

Result<std::filesystem::path> python_program() {
  const std::string given = variable(own_environment(), "LOCKSTEP_PYTHON");
  const std::string name = given.empty() ? "python3" : given;
  const auto said = launcher::run_program(name, {"-c", kWhichPython}, "", kStartTimeoutMs);
  const std::string wanted =
      text("this command needs Python 3.9 or newer, as python3 in PATH or as LOCKSTEP_PYTHON");
  if (!said) return Error{Code::kConfig, text(said.error().message, ": ", wanted)};
  if (said.value().exit_status != 0 || said.value().standard_output.empty())
    return Error{Code::kConfig, text(name, " does not start or is too old: ", wanted)};
  return std::filesystem::path(said.value().standard_output);
}

Error become_tool(const std::string& name, const std::vector<std::string>& arguments) {
  const auto script = tool_script(name);
  if (!script) return script.error();
  const auto python = python_program();
  if (!python) return python.error();
  launcher::WorkerProcess::Options options;
  options.program = python.value();
  options.arguments = {script.value().string()};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  options.environment = own_environment();
  options.environment["LOCKSTEP"] = launcher::running_executable().string();
  return launcher::exec_program(options);
}

}  // namespace lockstep::cli
