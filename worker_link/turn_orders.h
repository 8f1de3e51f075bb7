// What an agent tells a process of a worker for its next turn (progress_page.h): the variables that
// it would have been started with, NAME=VALUE and a zero each, in the file beside its page. Two of
// them say where its output goes: LOCKSTEP_STDOUT, LOCKSTEP_STDERR. A process that is started with
// LOCKSTEP_TURNS may count on orders, and with "later" begins with them; any other ends with its
// generation.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/file_system.h"

namespace lockstep {
inline namespace base {

using Variables = std::map<std::string, std::string>;

// Errors: kIo.
Result<void> write_orders(FileSystem& file_system, const std::filesystem::path& page,
                          const Variables& variables);
// Errors: kIo, kNotFound, kCorrupt.
Result<Variables> read_orders(FileSystem& file_system, const std::filesystem::path& page);
// Standard output and standard error are appended to the files that the orders name. Errors: kIo.
Result<void> redirect_output(const Variables& orders);

}  // namespace base
}  // namespace lockstep
