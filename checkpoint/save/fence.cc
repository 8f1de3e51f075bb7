#include "checkpoint/save/fence.h"

#include "base/check.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

std::string line_of(const Fence& fence) {
  LOCKSTEP_CHECK(fence.generation >= 0 && !fence.nonce.empty(), "generation ", fence.generation,
                 " with the nonce \"", fence.nonce, "\"");
  return text("g", fence.generation, "-", fence.nonce);
}

}  // namespace

Result<void> Fence::take(FileSystem& file_system) const {
  return publish_file(file_system, folder / kFenceName, line_of(*this) + "\n");
}

Result<void> Fence::check(FileSystem& file_system) const {
  const auto found = read_file(file_system, folder / kFenceName);
  if (!found.ok() && found.error().code == Code::kNotFound)
    return Error{Code::kIo, text(folder.string(), ": ", kFenceName,
                                 ", which this run wrote, is missing; is the filesystem mounted?")};
  if (!found.ok()) return found.error();
  if (found.value() == line_of(*this) + "\n") return {};
  return Error{Code::kAborted,
               text(folder.string(), " now belongs to generation ",
                    found.value().substr(0, found.value().find('\n')), ", so generation ",
                    line_of(*this), " may not commit any more")};
}

}  // namespace lockstep::checkpoint
