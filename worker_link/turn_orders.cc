#include "worker_link/turn_orders.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace lockstep {
inline namespace base {
namespace {

constexpr std::pair<const char*, int> kOutputs[] = {{"LOCKSTEP_STDOUT", STDOUT_FILENO},
                                                    {"LOCKSTEP_STDERR", STDERR_FILENO}};

std::filesystem::path orders_of(const std::filesystem::path& page) {
  return page.string() + ".orders";
}

}  // namespace

// Not durable: it is of use while both processes live.
Result<void> write_orders(FileSystem& file_system, const std::filesystem::path& page,
                          const Variables& variables) {
  std::string bytes;
  for (const auto& [name, value] : variables) bytes += name + "=" + value + '\0';
  LOCKSTEP_TRY(const auto file, file_system.create(orders_of(page)));
  return file->write_at(as_bytes(bytes), 0);
}

Result<Variables> read_orders(FileSystem& file_system, const std::filesystem::path& page) {
  LOCKSTEP_TRY(const std::string bytes, read_file(file_system, orders_of(page)));
  Variables variables;
  for (const std::string& entry : split(bytes, '\0')) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos)
      variables[entry.substr(0, equals)] = entry.substr(equals + 1);
    else if (!entry.empty())
      return Error{Code::kCorrupt, text(orders_of(page).string(), ": not a variable: ", entry)};
  }
  return variables;
}

Result<void> redirect_output(const Variables& orders) {
  for (const auto& [name, descriptor] : kOutputs) {
    const auto found = orders.find(name);
    if (found == orders.end()) continue;
    const int file = ::open(found->second.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    const bool done = file >= 0 && ::dup2(file, descriptor) >= 0;
    const int error = errno;
    if (file >= 0) ::close(file);
    if (!done) return Error{Code::kIo, text(found->second, ": ", std::strerror(error))};
  }
  return {};
}

}  // namespace base
}  // namespace lockstep
