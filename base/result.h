// Result<T>: what a function that can fail returns. A value, or an Error with a closed Code and a
// message written for the person who must act on it. Exceptions stay in the file that calls the
// library which throws them.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace lockstep {
inline namespace base {

// A code exists only where somebody reacts differently to it.
enum class Code {
  kConfig,    // the user's input is wrong; never restarted (exit 64)
  kIo,        // the operating system refused a read, write or sync
  kDenied,    // the operating system allows no such access here; a restart is refused too (exit 64)
  kNoSpace,   // the disk is full; training goes on, the save does not (exit 74)
  kCorrupt,   // bytes on disk are not what was written; fall back
  kNotFound,  // nothing there
  kPeerLost,  // another rank is gone; restart at once (exit 76)
  kTimeout,   // a deadline passed
  kAborted,   // asked to stop (signal, shutdown)
  kNotFinite,  // a loss that is no number, which a restart would compute again (exit 64)
  kWrongBits,  // a device computes wrongly or holds wrong bits: never restarted there (exit 77)
  kChanged,    // the generation ended by a planned change; the next one follows (exit 78)
  kBug,        // ours; bounded restarts (exit 70)
};
const char* code_name(Code code);
// The process exit status that stands for `code` (docs/FAULTS.md lists the contract).
int exit_status(Code code);

struct Error {
  Code code = Code::kBug;
  std::string message;
  // The same error with "where: " put before the message.
  Error in(const std::string& where) const { return {code, where + ": " + message}; }
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T value() && { return std::get<0>(std::move(state_)); }  // lives on in a range-for
  T* operator->() { return &value(); }
  T& operator*() & { return value(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace base
}  // namespace lockstep

#define LOCKSTEP_CONCAT_INNER(a, b) a##b
#define LOCKSTEP_CONCAT(a, b) LOCKSTEP_CONCAT_INNER(a, b)
// LOCKSTEP_TRY(auto x, f()): x = the value, or return f's error from this function.
#define LOCKSTEP_TRY(declaration, expression) \
  LOCKSTEP_TRY_INNER(declaration, expression, LOCKSTEP_CONCAT(lockstep_result_, __LINE__))
#define LOCKSTEP_TRY_INNER(declaration, expression, result) \
  auto result = (expression);                               \
  if (!result.ok()) return result.error();                  \
  declaration = std::move(result).value()
// LOCKSTEP_RETURN_IF_ERROR(f()): for Result<void>.
#define LOCKSTEP_RETURN_IF_ERROR(expression) \
  if (auto lockstep_status = (expression); !lockstep_status.ok()) return lockstep_status.error()
