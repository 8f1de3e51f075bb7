// The secret of one job authenticates the members of the job (docs/SECURITY.md).
//
//   LOCKSTEP_SECRET       64 hexadecimal digits in the agents' environment; workers do not get it
//   <run>/control.secret  the same in a file that only its owner can read; the first agent makes it
//
// Copies are wiped when they go.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "base/result.h"

namespace lockstep::launcher::net {

inline constexpr char kSecretVariable[] = "LOCKSTEP_SECRET";

class Secret {
 public:
  static constexpr size_t kBytes = 32;

  static Secret generate();
  // `origin`: of these words, in messages. Errors: kConfig; the message does not repeat the words.
  static Result<Secret> parse(const std::string& hex_digits, std::string origin);
  // Reads `path`, or makes it (0600) when it is not there: of several that come at once, one makes
  // it and all read the same, and nobody sees half of it. Errors: kConfig (the file is somebody
  // else's, or others may read or write it, or it holds something else), kIo, kNoSpace.
  static Result<Secret> of_file(const std::filesystem::path& path);
  // LOCKSTEP_SECRET where it is set, else of_file(run_folder / "control.secret").
  static Result<Secret> of_job(const std::map<std::string, std::string>& environment,
                               const std::filesystem::path& run_folder);

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  std::span<const unsigned char> bytes() const { return bytes_; }
  std::string hex() const;
  // LOCKSTEP_SECRET, the file's name, or "this process" of a generated one.
  const std::string& origin() const { return origin_; }

 private:
  Secret() = default;
  std::array<unsigned char, kBytes> bytes_{};
  std::string origin_ = "this process";
};

}  // namespace lockstep::launcher::net
