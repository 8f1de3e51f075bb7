#include "cli/shared/jinja_python.h"

#include <memory>
#include <string>
#include <utility>

#include "base/text.h"
#include "cli/shared/python_tools.h"
#include "launcher/host/pipe.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kAnswerTimeoutMs = 300'000;

class PythonLines : public data::LineAnswers {
 public:
  explicit PythonLines(launcher::LineProgram program) : program_(std::move(program)) {}
  Result<std::string> ask(const std::string& line) override {
    return program_.ask(line, kAnswerTimeoutMs);
  }

 private:
  launcher::LineProgram program_;
};

}  // namespace

data::PythonStarter jinja_python() {
  return [](const std::string& script) -> Result<std::unique_ptr<data::LineAnswers>> {
    const auto python = python_program();
    if (!python.ok())
      return Error{python.error().code,
                   text("the chat template is rendered by Python with jinja2 (Debian: apt-get "
                        "install python3-jinja2): ",
                        python.error().message)};
    LOCKSTEP_TRY(auto program, launcher::LineProgram::start(python.value(), {"-c", script}));
    return std::unique_ptr<data::LineAnswers>(std::make_unique<PythonLines>(std::move(program)));
  };
}

}  // namespace lockstep::cli
