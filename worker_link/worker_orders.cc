#include "worker_link/worker_orders.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"

namespace lockstep {
inline namespace base {
namespace {

using Words = std::vector<std::string>;
Words words_of(Serves) { return {"", "first", "later"}; }
Words words_of(StoreServer) { return {"rank0", "none"}; }

template <typename T>
std::string to_word(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return words_of(value)[static_cast<size_t>(value)];
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else {
    return value;
  }
}

// False: that is no value of T.
template <typename T>
bool from_word(const std::string& word, T& value) {
  if constexpr (std::is_enum_v<T>) {
    const Words words = words_of(value);
    const auto found = std::find(words.begin(), words.end(), word);
    if (found == words.end()) return false;
    value = static_cast<T>(found - words.begin());
  } else if constexpr (std::is_integral_v<T>) {
    const auto number = parse_number<T>(word);
    if (!number || std::cmp_less(*number, 0)) return false;
    value = *number;
  } else {
    value = word;
  }
  return true;
}

// The same walk over the fields writes and reads.
struct Writing {
  Environment out = {};
  template <typename T>
  void operator()(const char* name, const T& value) {
    if (const std::string word = to_word(value); !word.empty()) out[name] = word;
  }
};

// A field whose variable is not set, or is empty, stays as it is.
struct Reading {
  const Environment& in;
  Result<void> done = {};  // the first error
  template <typename T>
  void operator()(const char* name, T& value) {
    const std::string word = variable(in, name);
    if (done && !word.empty() && !from_word(word, value)) done = wrong(name, word);
  }
  static Error wrong(const char* name, const std::string& word) {
    return {Code::kConfig, text("environment variable ", name, " cannot be \"", word, "\"")};
  }
};

// Orders is const when writing.
template <typename Io, typename Orders>
void torchrun_fields(Io& io, Orders& o) {
  io("RANK", o.rank);
  io("LOCAL_RANK", o.local_rank);
  io("WORLD_SIZE", o.world_size);
  io("LOCAL_WORLD_SIZE", o.local_world_size);
}

template <typename Io, typename Orders>
void own_fields(Io& io, Orders& o) {
  io("LOCKSTEP_GENERATION", o.generation);
  io("LOCKSTEP_NONCE", o.nonce);
  io("LOCKSTEP_STORE", o.store);
  io("LOCKSTEP_STORE_SERVER", o.store_server);
  io("LOCKSTEP_BIND_ADDRESS", o.bind_address);
  io("LOCKSTEP_BIND_INTERFACE", o.bind_interface);
  io("LOCKSTEP_PROGRESS_PAGE", o.progress_page);
  io("LOCKSTEP_TURNS", o.serves);
  io("LOCKSTEP_KEEP_BYTES", o.keep_bytes);
  io("LOCKSTEP_STDOUT", o.standard_output);
  io("LOCKSTEP_STDERR", o.standard_error);
}

bool is_store(const std::string& words) {
  if (!words.starts_with("tcp:")) return words.starts_with("file:") || words.starts_with("agent:");
  return words.rfind(':') > 4 && parse_number<uint16_t>(words.substr(words.rfind(':') + 1));
}

std::filesystem::path orders_of(const std::filesystem::path& page) {
  return page.string() + ".orders";
}

}  // namespace

Environment encode(const WorkerOrders& orders) {
  LOCKSTEP_CHECK(orders.rank >= 0 && orders.rank < orders.world_size, orders.rank, " of ",
                 orders.world_size);
  LOCKSTEP_CHECK(orders.local_rank >= 0 && orders.local_world_size >= 0, orders.local_rank, " of ",
                 orders.local_world_size);
  LOCKSTEP_CHECK(orders.generation >= 0 && orders.keep_bytes >= 0, orders.generation, " ",
                 orders.keep_bytes);
  Writing io;
  torchrun_fields(io, orders);
  own_fields(io, orders);
  return std::move(io.out);
}

Result<WorkerOrders> parse_torchrun_orders(const Environment& environment) {
  WorkerOrders orders;
  Reading io{environment};
  torchrun_fields(io, orders);
  std::string address = "127.0.0.1";
  uint16_t port = 29500;
  // Where the store is another one they may be somebody else's: Kubernetes sets MASTER_PORT for a
  // service of the name master.
  if (variable(environment, "LOCKSTEP_STORE").empty()) {
    io("MASTER_ADDR", address);
    io("MASTER_PORT", port);
  }
  LOCKSTEP_RETURN_IF_ERROR(io.done);
  if (orders.rank >= orders.world_size)
    return Error{Code::kConfig,
                 text("environment variables RANK, ", orders.rank, ", and WORLD_SIZE, ",
                      orders.world_size, ", do not fit together")};
  orders.store = text("tcp:", address, ":", port);
  return orders;
}

Result<WorkerOrders> parse_worker_orders(const Environment& environment) {
  LOCKSTEP_TRY(WorkerOrders orders, parse_torchrun_orders(environment));
  Reading io{environment};
  own_fields(io, orders);
  LOCKSTEP_RETURN_IF_ERROR(io.done);
  if (!is_store(orders.store)) return Reading::wrong("LOCKSTEP_STORE", orders.store);
  return orders;
}

// Not durable: it is of use while both processes live.
Result<void> write_orders(FileSystem& file_system, const std::filesystem::path& page,
                          const WorkerOrders& orders) {
  LOCKSTEP_CHECK(!page.empty(), "the orders of rank ", orders.rank, " have no page to lie by");
  std::string bytes;
  for (const auto& [name, value] : encode(orders)) bytes += name + "=" + value + '\0';
  LOCKSTEP_TRY(const auto file, file_system.create(orders_of(page)));
  return file->write_at(as_bytes(bytes), 0);
}

Result<WorkerOrders> read_orders(FileSystem& file_system, const std::filesystem::path& page) {
  LOCKSTEP_TRY(const std::string bytes, read_file(file_system, orders_of(page)));
  Environment variables;
  for (const std::string& entry : split(bytes, '\0')) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos)
      variables[entry.substr(0, equals)] = entry.substr(equals + 1);
    else if (!entry.empty())
      return Error{Code::kCorrupt,
                   text(orders_of(page).string(), ": this line is not a variable: ", entry)};
  }
  return parse_worker_orders(variables);
}

Result<void> redirect_output(const WorkerOrders& orders) {
  for (const auto& [path, descriptor] : {std::pair(orders.standard_output, STDOUT_FILENO),
                                         std::pair(orders.standard_error, STDERR_FILENO)}) {
    if (path.empty()) continue;
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    const bool done = file >= 0 && ::dup2(file, descriptor) >= 0;
    const int error = errno;
    if (file >= 0) ::close(file);
    if (!done) return Error{Code::kIo, text(path.string(), ": ", std::strerror(error))};
  }
  return {};
}

}  // namespace base
}  // namespace lockstep
