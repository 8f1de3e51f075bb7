#include "core/train/memory_place.h"

#include "base/hash.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/number.h"
#include "core/comm/gather_strings.h"

namespace lockstep::core {
namespace {

constexpr const char* kDefaultFolder = "/dev/shm";
constexpr size_t kIdentityBytes = 96;  // of a directory, at most

// The id of the run whose checkpoints lie in the folder, made when missing. Removing the
// checkpoints removes it, and with it every claim to old snapshots. Only this user may read it: who
// knows the name of the folder in memory could make it first.
Result<uint64_t> run_id_of(FileSystem& file_system, const std::filesystem::path& checkpoints) {
  const auto path = checkpoints / "memory_id";
  LOCKSTEP_TRY(const uint64_t number, random_number());
  if (file_system.exists(path)) {
    const auto digits = read_file(file_system, path);
    if (digits.ok()) return xxh3_64(digits.value());
    if (digits.error().code != Code::kDenied) return digits.error();
    log_warning(digits.error().message,
                ": the run belongs to another user, so its snapshots in memory are not used");
    return number;
  }
  const std::string digits = hex64(number) + "\n";
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(checkpoints));
  LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, path, digits, Readers::kOwner));
  return xxh3_64(digits);
}

// Rank 0 says the id and the folder's name. "<id> <name>"
Result<std::string> agree_on_run(FileSystem& file_system, const Config& config,
                                 const std::filesystem::path& checkpoint_place, SharedStore& store,
                                 const MemoryPlace& place) {
  if (place.rank == 0) {
    LOCKSTEP_TRY(const uint64_t id, run_id_of(file_system, config.checkpoint_folder()));
    const std::string name = "lockstep-" + hex64(xxh3_64(checkpoint_place.string(), id));
    LOCKSTEP_RETURN_IF_ERROR(store.set("memory/run", text(id, " ", name)));
  }
  return store.get("memory/run", place.timeout_s);
}

}  // namespace

std::vector<int> MemoryPlace::ranks_on(int of_node) const {
  std::vector<int> ranks;
  for (size_t r = 0; r < node_of_rank.size(); ++r)
    if (node_of_rank[r] == of_node) ranks.push_back(static_cast<int>(r));
  return ranks;
}

Result<MemoryPlace> find_memory_place(FileSystem& file_system, const Config& config,
                                      const std::filesystem::path& checkpoint_place,
                                      SharedStore& store, Communicator& comm) {
  MemoryPlace place;
  place.rank = comm.rank();
  place.timeout_s = config.comm.init_timeout_seconds;
  LOCKSTEP_TRY(const std::string run,
               agree_on_run(file_system, config, checkpoint_place, store, place));
  const std::vector<std::string> words = split(run, ' ');
  place.run_id = parse_number<uint64_t>(words[0]).value();
  const std::string base = config.checkpoint.memory_folder;
  place.folder = std::filesystem::path(base.empty() ? kDefaultFolder : base) / words[1];
  LOCKSTEP_RETURN_IF_ERROR(make_owned_directory(place.folder));
  LOCKSTEP_TRY(const std::string mine, directory_identity(place.folder));
  LOCKSTEP_TRY(const auto all, gather_strings(comm, mine, kIdentityBytes));
  std::vector<std::string> seen;
  for (const std::string& theirs : all) {
    const auto at = std::find(seen.begin(), seen.end(), theirs);
    place.node_of_rank.push_back(static_cast<int>(at - seen.begin()));
    if (at == seen.end()) seen.push_back(theirs);
  }
  return place;
}

Result<std::vector<checkpoint::Inventory>> take_inventory(FileSystem& file_system,
                                                          const MemoryPlace& place,
                                                          SharedStore& store) {
  if (place.leads()) {
    auto found = checkpoint::look(file_system, place.folder, place.run_id);
    if (!found.ok()) log_warning("cannot look for snapshots in memory: ", found.error().message);
    const checkpoint::Inventory inventory =
        found.ok() ? std::move(found).value() : checkpoint::Inventory();
    for (const std::string& problem : inventory.problems)
      log_warning("a snapshot in memory is damaged: ", problem);
    LOCKSTEP_RETURN_IF_ERROR(
        store.set(text("memory/found/", place.node()), checkpoint::inventory_text(inventory)));
  }
  std::vector<checkpoint::Inventory> by_node;
  if (place.rank != 0) return by_node;
  const int nodes = 1 + *std::max_element(place.node_of_rank.begin(), place.node_of_rank.end());
  for (int node = 0; node < nodes; ++node) {
    LOCKSTEP_TRY(const std::string said, store.get(text("memory/found/", node), place.timeout_s));
    LOCKSTEP_TRY(auto inventory, checkpoint::parse_inventory(said));
    by_node.push_back(std::move(inventory));
  }
  return by_node;
}

}  // namespace lockstep::core
