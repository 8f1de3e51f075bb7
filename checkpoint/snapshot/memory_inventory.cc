#include "checkpoint/snapshot/memory_inventory.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/save/vote.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::json;

// "g3-7f2a91" -> 3; -1: not one of ours.
int64_t generation_of(const std::string& name) {
  int64_t generation = -1;
  const char* const end = name.data() + name.size();
  if (!name.starts_with("g")) return -1;
  const auto [rest, error] = std::from_chars(name.data() + 1, end, generation);
  return error == std::errc{} && rest != end && *rest == '-' ? generation : -1;
}

// "rank_3.own.0": whose state, and whether it is a copy kept for a buddy.
bool parse_slot_name(const std::string& name, FoundSlot& slot) {
  const std::vector<std::string> words = split(name, '.');
  if (words.size() != 3 || !words[0].starts_with("rank_")) return false;
  slot.buddy = words[1] == "buddy";
  const std::string digits = words[0].substr(5);
  const auto [rest, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), slot.rank);
  return error == std::errc{} && rest == digits.data() + digits.size();
}

void look_at(FileSystem& file_system, const std::filesystem::path& path, uint64_t run_id,
             Inventory& found) {
  FoundSlot slot;
  slot.path = path.string();
  if (!parse_slot_name(path.filename().string(), slot)) return;
  auto header = read_slot(file_system, path, run_id);
  if (header.ok()) {
    slot.header = std::move(header).value();
    found.slots.push_back(std::move(slot));
  } else if (header.error().code != Code::kAborted && header.error().code != Code::kNotFound) {
    found.problems.push_back(header.error().message);
  }
}

json json_of(const Snapshot::Home& home) {
  return {home.node, home.buddy, home.path, home.data_offset};
}

using PartsByRank = std::map<int, std::vector<std::pair<int, const FoundSlot*>>>;  // (node, slot)

// The snapshot that these parts make. Errors: a text saying what is missing or wrong.
Result<Snapshot> merge(const PartsByRank& parts) {
  const int64_t ranks = parts.begin()->second.front().second->header.part.world_size;
  Snapshot snapshot;
  std::vector<Vote> votes;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto at = parts.find(rank);
    if (at == parts.end())
      return Error{Code::kNotFound, text("no copy of the part of rank ", rank, " is left")};
    votes.push_back({rank, "", at->second.front().second->header.part});
    std::vector<Snapshot::Home> homes;
    for (const bool buddy : {false, true})
      for (const auto& [node, slot] : at->second)
        if (slot->buddy == buddy)
          homes.push_back({node, buddy, slot->path, slot->header.data_offset});
    snapshot.homes.push_back(std::move(homes));
  }
  LOCKSTEP_TRY(snapshot.whole, merge_votes(votes));
  LOCKSTEP_CHECK(std::ssize(snapshot.homes) == ranks && snapshot.whole.files.size() == votes.size(),
                 snapshot.homes.size(), " homes and ", snapshot.whole.files.size(),
                 " parts of a snapshot of ", ranks, " ranks");
  return snapshot;
}

std::string contradiction(const Snapshot& snapshot, int64_t base_step, const DiskState& disk) {
  const Manifest& m = snapshot.whole;
  if (m.step < disk.step) return text("it is older than step ", disk.step, " on disk");
  if (m.generation < disk.generation)
    return text("it is older than generation ", disk.generation, ", which committed step ",
                disk.step);
  if (base_step > disk.newest_step)
    return text("it was taken when step ", base_step,
                " was on disk, but the newest step on disk is now ", disk.newest_step);
  return "";
}

}  // namespace

Result<Inventory> look(FileSystem& file_system, const std::filesystem::path& folder,
                       uint64_t run_id) {
  Inventory found;
  if (!file_system.exists(folder)) return found;
  LOCKSTEP_TRY(const auto generations, file_system.list(folder));
  for (const std::string& name : generations) {
    if (generation_of(name) < 0) continue;
    found.last_generation = std::max(found.last_generation, generation_of(name));
    LOCKSTEP_TRY(const auto slots, file_system.list(folder / name));
    for (const std::string& slot : slots) look_at(file_system, folder / name / slot, run_id, found);
  }
  return found;
}

std::string inventory_text(const Inventory& inventory) {
  json slots = json::array();
  for (const FoundSlot& s : inventory.slots)
    slots.push_back({s.path, s.rank, s.buddy, s.header.committed_step, s.header.data_offset,
                     manifest_text(s.header.part)});
  return dump_json(json{{"slots", std::move(slots)},
                        {"problems", inventory.problems},
                        {"last_generation", inventory.last_generation}});
}

Result<Inventory> parse_inventory(const std::string& contents) {
  Inventory inventory;
  try {
    const json j = parse_json(contents);
    inventory.problems = j.at("problems").get<std::vector<std::string>>();
    inventory.last_generation = j.at("last_generation");
    for (const json& s : j.at("slots")) {
      LOCKSTEP_TRY(Manifest part, parse_manifest(s.at(5), Coverage::kPart));
      inventory.slots.push_back({s.at(0), s.at(1), s.at(2), {s.at(3), s.at(4), std::move(part)}});
    }
  } catch (const json::exception& e) {
    return Error{Code::kCorrupt, text("cannot parse the snapshot inventory of a node: ", e.what())};
  }
  return inventory;
}

std::string snapshot_text(const Snapshot& snapshot) {
  json homes = json::array();
  for (const auto& of_rank : snapshot.homes) {
    homes.push_back(json::array());
    for (const Snapshot::Home& home : of_rank) homes.back().push_back(json_of(home));
  }
  return dump_json(json{{"homes", std::move(homes)}, {"whole", manifest_text(snapshot.whole)}});
}

Result<Snapshot> parse_snapshot(const std::string& contents) {
  Snapshot snapshot;
  try {
    const json j = parse_json(contents);
    LOCKSTEP_TRY(snapshot.whole, parse_manifest(j.at("whole")));
    for (const json& of_rank : j.at("homes")) {
      snapshot.homes.emplace_back();
      for (const json& h : of_rank)
        snapshot.homes.back().push_back({h.at(0), h.at(1), h.at(2), h.at(3)});
    }
  } catch (const json::exception& e) {
    return Error{Code::kCorrupt, text("cannot parse the description of a snapshot: ", e.what())};
  }
  return snapshot;
}

DiskState disk_state(const std::vector<CatalogEntry>& entries) {
  DiskState disk;
  for (const CatalogEntry& entry : entries) {
    if (entry.committed) disk.generation = std::max(disk.generation, entry.generation);
    if (entry.committed) disk.step = std::max(disk.step, entry.step);
    if (entry.has_manifest) disk.newest_step = std::max(disk.newest_step, entry.step);
  }
  return disk;
}

std::vector<Snapshot> usable_snapshots(const std::vector<Inventory>& by_node, const DiskState& disk,
                                       std::vector<std::string>& passed_over) {
  // Newest generation first, then newest step.
  std::map<std::tuple<int64_t, int64_t, std::string>, PartsByRank, std::greater<>> found;
  for (size_t node = 0; node < by_node.size(); ++node)
    for (const FoundSlot& slot : by_node[node].slots) {
      const Manifest& part = slot.header.part;
      found[{part.generation, part.step, part.nonce}][slot.rank].push_back(
          {static_cast<int>(node), &slot});
    }
  std::vector<Snapshot> usable;
  for (const auto& [key, parts] : found) {
    auto snapshot = merge(parts);
    int64_t base_step = -1;
    for (const auto& [rank, copies] : parts)
      for (const auto& copy : copies)
        base_step = std::max(base_step, copy.second->header.committed_step);
    const std::string wrong =
        snapshot.ok() ? contradiction(snapshot.value(), base_step, disk) : snapshot.error().message;
    if (wrong.empty()) {
      usable.push_back(std::move(snapshot).value());
    } else {
      passed_over.push_back(
          text("step ", std::get<1>(key), " of generation ", std::get<0>(key), ": ", wrong));
    }
  }
  return usable;
}

Result<std::vector<PartRead>> plan_reads(const Manifest& whole,
                                         const std::vector<LiveTarget>& targets) {
  struct Place {
    const TensorPiece* piece;
    int rank;
    int64_t offset;
  };
  std::map<std::string, std::vector<Place>> places;
  for (size_t rank = 0; rank < whole.files.size(); ++rank) {
    int64_t offset = 0;
    for (const TensorPiece& piece : whole.files[rank].pieces) {
      places[piece.tensor_key()].push_back({&piece, static_cast<int>(rank), offset});
      offset += piece.size_bytes();
    }
  }
  std::vector<PartRead> reads;
  for (const auto& [target, bytes] : targets) {
    int64_t found = 0;
    for (const Place& place : places[target.tensor_key()]) {
      const TensorPiece& piece = *place.piece;
      const int64_t first = std::max(piece.flat_start, target.flat_start);
      const int64_t last =
          std::min(piece.flat_start + piece.length, target.flat_start + target.length);
      if (first >= last || piece.global_shape != target.global_shape || piece.dtype != target.dtype)
        continue;
      const int64_t size = target.element_bytes();
      found += last - first;
      reads.push_back({place.rank, place.offset + size * (first - piece.flat_start),
                       bytes.subspan(static_cast<size_t>(size * (first - target.flat_start)),
                                     static_cast<size_t>(size * (last - first)))});
    }
    if (found != target.length)
      return Error{Code::kConfig,
                   text("the snapshot belongs to another model: it has no ", target.dataset_path(),
                        " of ", shape_text(target.global_shape))};
  }
  return reads;
}

Result<void> remove_older_snapshots(FileSystem& file_system, const std::filesystem::path& folder,
                                    int64_t generation, const std::string& keep) {
  LOCKSTEP_TRY(const auto names, file_system.list(folder));
  for (const std::string& name : names) {
    const int64_t old = generation_of(name);
    if (old >= 0 && old < generation && name != keep)
      LOCKSTEP_RETURN_IF_ERROR(remove_tree(file_system, folder / name));
  }
  return {};
}

}  // namespace lockstep::checkpoint
