// A chat template that Jinja itself renders, in a Python of its own (data/prepare/jinja_script.py),
// with the environment that transformers has: its filters, functions, sandbox and special tokens.
//
// What is learnt of a conversation:
//   1. What the template's {% generation %} blocks hold, if it has any.
//   2. Else of each answer the text that its message adds to the text of the messages before it,
//      with the generation prompt. Where the template writes no such prompt, or another beginning,
//      what two unlike answers have in common at their beginning is taken off.
//   3. What follows the token that ends an answer, if it is white space alone, is not learnt.
// A template that changes earlier text when a message is added does not tell which part is the
// answer, and is refused.
//
// Limits (JinjaLimits) are per conversation. Thread: any; each has a Python of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "data/prepare/conversation.h"
#include "data/prepare/folder_template.h"
#include "data/prepare/passage.h"

namespace lockstep::data {

// A program that answers each line with a line.
class LineAnswers {
 public:
  virtual ~LineAnswers() = default;
  virtual Result<std::string> ask(const std::string& line) = 0;
};
// Starts Python with a script. Errors: there is no Python.
using PythonStarter = std::function<Result<std::unique_ptr<LineAnswers>>(const std::string&)>;

struct JinjaLimits {
  int64_t cpu_s = 10;
  int64_t memory_mib = 1024;  // of the Python
  int64_t text_bytes = int64_t{64} << 20;
};

struct RenderedChat {
  std::string text;
  std::vector<std::pair<size_t, size_t>> learnt;  // begin and end, in bytes
  bool blocks = false;                            // the template itself says what is learnt
};

class JinjaTemplate {
 public:
  // `date`: "2026-01-31", which strftime_now writes; "": a template that calls it is refused.
  // Errors: kConfig, no Python, no jinja2, a template that is not valid Jinja.
  static Result<std::shared_ptr<const JinjaTemplate>> create(FolderTemplate source,
                                                             std::string date, PythonStarter start,
                                                             JinjaLimits limits = {});

  // "jinja:", a hash of all that decides what is rendered, and ":2026-01-31" if there is a date.
  std::string name() const;
  // The date in such a name, "" without one; none: it is another name.
  static std::optional<std::string> date_in(const std::string& name);
  const FolderTemplate& source() const { return source_; }

  // Errors: kConfig, what the template or the limits refuse.
  Result<RenderedChat> render(const Conversation& chat) const;
  // Without saying what is learnt. `is_prompt`: and what stands before the assistant's next answer.
  Result<std::string> text_of(const Conversation& chat, bool is_prompt) const;

 private:
  JinjaTemplate() = default;
  Result<std::unique_ptr<LineAnswers>> started() const;
  Result<RenderedChat> ask(const Conversation& chat, const char* wanted) const;

  FolderTemplate source_;
  std::string date_;
  PythonStarter start_;
  JinjaLimits limits_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<LineAnswers>> idle_;  // guarded by mutex_
};

// All are tokenized together, as one text. `end_of_answer`: the name of the token; "": none is
// known. Errors: kConfig, the template writes nothing of what the assistant says.
Result<std::vector<Passage>> passages_of(const RenderedChat& chat,
                                         const std::string& end_of_answer);

}  // namespace lockstep::data
