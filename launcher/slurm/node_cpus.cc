#include "launcher/slurm/node_cpus.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/number.h"
#include "base/text.h"

namespace lockstep::launcher::slurm {
namespace {

// "64" or "64+", the least of unlike nodes. 0: no number.
int64_t leading_number(std::string_view word) {
  int64_t number = 0;
  std::from_chars(word.data(), word.data() + word.size(), number);
  return number;
}

// `name` as sinfo writes it, with a * where it is the site's own choice.
bool is_asked_for(std::string name, const std::string& partitions) {
  const bool is_default = name.ends_with('*');
  if (partitions.empty()) return is_default;
  if (is_default) name.pop_back();
  const auto asked = split(partitions, ',');
  return std::find(asked.begin(), asked.end(), name) != asked.end();
}

}  // namespace

int64_t gpus_of_count(std::string_view count) {
  const std::string_view last = count.substr(count.rfind(':') + 1);
  return parse_number(last).value_or(last.empty() ? 0 : 1);
}

int64_t gpus_of_gres(std::string_view gres) {
  int64_t gpus = 0;
  for (const std::string& entry : split(gres, ',')) {
    const std::string item = entry.substr(0, entry.find('('));
    if (item == "gpu" || item.starts_with("gpu:")) gpus += gpus_of_count(item);
  }
  return gpus;
}

Result<int64_t> cpus_of_share(std::string_view lines, const NodeShare& share) {
  int64_t least = 0;
  for (const std::string& line : split(lines, '\n')) {
    const std::vector<std::string> cells = split(line, '|');
    if (cells.size() != 4 || !is_asked_for(cells[0], share.partitions)) continue;
    int64_t cpus = leading_number(cells[1]);
    const std::vector<std::string> parts = split(cells[2], ':');  // sockets, cores, threads
    if (share.one_a_core && parts.size() == 3)
      cpus = leading_number(parts[0]) * leading_number(parts[1]);
    const int64_t gpus = gpus_of_gres(cells[3]);
    if (gpus < share.gpus || cpus < 1) continue;
    if (share.gpus > 0) cpus = std::max<int64_t>(1, cpus * share.gpus / gpus);
    least = least == 0 ? cpus : std::min(least, cpus);
  }
  if (least > 0) return least;
  const std::string where = share.partitions.empty() ? "the default partition" : share.partitions;
  return Error{Code::kConfig, text("sinfo shows no node of ", where,
                                   share.gpus > 0 ? text(" with ", counted(share.gpus, "GPU")) : "",
                                   " whose CPUs can be counted")};
}

}  // namespace lockstep::launcher::slurm
