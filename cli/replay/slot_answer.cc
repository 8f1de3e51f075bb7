#include "cli/replay/slot_answer.h"

#include "base/hash.h"
#include "base/text.h"
#include "layout/strategy.h"

namespace lockstep::cli {
namespace {

// One number for all units, whatever their order.
std::string combined(const std::map<std::string, std::string>& digests) {
  std::string all;
  for (const auto& [unit, digest] : digests) all += text(unit, "=", digest, "\n");
  return hex64(xxh3_64(as_bytes(all)));
}

std::string ranks_text(const std::vector<int64_t>& ranks) {
  std::string all = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) all += text(i == 0 ? "" : ", ", ranks[i]);
  return all;
}

}  // namespace

std::optional<int> rank_of_slot(const Config& config, int64_t world_size, int64_t slot) {
  const bool by_nodes = config.parallelism.slot_map == SlotMapKind::kGroupBlock && world_size > 1;
  if (world_size < 1 || by_nodes || slot >= config.slots()) return std::nullopt;
  return layout::slot_map(config, static_cast<int>(world_size), {}).rank_of(slot);
}

Result<std::string> slot_line(const StepRecord& replayed, const StepRecord& logged,
                              const Config& config) {
  const SlotRecord& answer = replayed.slot;
  if (answer.slot < 0)
    return Error{Code::kConfig, text("the replay computed no slot by itself in step ",
                                     replayed.step, ", whose update was skipped")};
  const auto had = rank_of_slot(config, logged.world_size, answer.slot);
  return text("step ", replayed.step, ", slot ", answer.slot,
              had ? text(", which rank ", *had, " of ", logged.world_size, " had") : "", ": loss ",
              answer.loss_hex, ", gradients ", combined(answer.digests), " of ",
              counted(std::ssize(answer.digests), "unit"));
}

std::string slot_disagreement(const Steps& replayed) {
  for (const auto& [step, record] : replayed) {
    const SlotRecord& answer = record.slot;
    if (answer.same) continue;
    return text(
        "step ", step, ": the answers of this machine differ, and ",
        answer.wrong.empty()
            ? text("nothing tells which of ", ranks_text(answer.undecided), " is right")
            : text(ranks_text(answer.wrong), answer.wrong.size() == 1 ? " is" : " are", " wrong"),
        ": ", answer.difference);
  }
  return "";
}

}  // namespace lockstep::cli
