#include "checkpoint/save/retention.h"
#include "base/check.h"
#include "base/text.h"
#include "checkpoint/record/attempt.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

namespace lockstep::checkpoint {
namespace {

using Path = std::filesystem::path;

void sort_newest_first(std::vector<CatalogEntry>& entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.generation, a.step) > std::tie(b.generation, b.step);
  });
}

// For each entry, newest first, whether no later generation passed its step again.
std::vector<bool> of_the_newest_line(const std::vector<CatalogEntry>& entries) {
  std::vector<bool> counts(entries.size());
  int64_t passed_again = std::numeric_limits<int64_t>::max();  // the lowest newer committed step
  for (size_t i = 0; i < entries.size(); ++i) {
    counts[i] = entries[i].step < passed_again;
    if (entries[i].committed) passed_again = std::min(passed_again, entries[i].step);
  }
  return counts;
}

// For each entry, newest first, whether a rule keeps it for ever.
std::vector<bool> kept_for_ever(const std::vector<CatalogEntry>& entries,
                                const RetentionPolicy& policy) {
  std::vector<bool> kept(entries.size()), counts = of_the_newest_line(entries);
  for (size_t i = 0; i < entries.size(); ++i) {
    const CatalogEntry& e = entries[i];
    counts[i] = counts[i] && e.has_manifest && !e.ephemeral;
    kept[i] = counts[i] && policy.keep_every > 0 && e.step % policy.keep_every == 0;
  }
  if (policy.keep_minutes <= 0) return kept;
  std::optional<int64_t> last_s;
  for (size_t i = entries.size(); i-- > 0;) {  // oldest first: what goes never changes the choice
    if (!counts[i]) continue;
    const std::optional<int64_t>& at_s = entries[i].created_s;
    const bool due = !at_s || !last_s ||
                     *at_s < *last_s ||  // a clock that was set back starts anew
                     static_cast<double>(*at_s - *last_s) >= 60 * policy.keep_minutes;
    if (!due) continue;
    kept[i] = true;
    if (at_s) last_s = at_s;
  }
  return kept;
}

// The place of the newest one that is audited whole; past the end: none is.
size_t newest_audited(const std::vector<CatalogEntry>& entries, int64_t audited_step) {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const CatalogEntry& e) {
    return e.usable() && e.step <= audited_step;
  });
  return static_cast<size_t>(found - entries.begin());
}

// The place of the best one, newest first; past the end: none was validated.
size_t best_place(const std::vector<CatalogEntry>& entries) {
  const std::vector<bool> counts = of_the_newest_line(entries);
  size_t best = entries.size();
  for (size_t i = entries.size(); i-- > 0;) {
    const CatalogEntry& e = entries[i];
    if (!counts[i] || !e.usable() || !e.validation_loss) continue;
    if (best == entries.size() || *e.validation_loss < *entries[best].validation_loss) best = i;
  }
  return best;
}

bool is_permanent(const CatalogEntry& e) { return e.usable() && !e.ephemeral; }

// What no policy may remove, found by other means than superfluous() has: the newest usable one,
// permanent ones down to keep_latest_k, and whatever a later generation has. `entries`: newest
// first; `goes`: for each.
void check_what_stays(const std::vector<CatalogEntry>& entries, const std::vector<bool>& goes,
                      const RetentionPolicy& policy, int64_t generation) {
  bool newest = true;  // usable one
  int64_t permanent = 0, left = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const CatalogEntry& e = entries[i];
    LOCKSTEP_CHECK(!goes[i] || e.generation <= generation, e.directory.string(),
                   " would go, and is of a later generation than ", generation);
    LOCKSTEP_CHECK(!goes[i] || !e.usable() || !newest, e.directory.string(),
                   " would go, and is the newest that can be used");
    newest = newest && !e.usable();
    permanent += is_permanent(e);
    left += is_permanent(e) && !goes[i];
  }
  const int64_t wanted =
      policy.keep_latest_k > 0 ? std::min(policy.keep_latest_k, permanent) : permanent;
  LOCKSTEP_CHECK(left >= wanted, left, " of ", permanent, " permanent ones would be left, and ",
                 wanted, " are to stay");
}

}  // namespace

std::vector<Path> superfluous(std::vector<CatalogEntry> entries, const RetentionPolicy& policy,
                              int64_t generation) {
  sort_newest_first(entries);
  const std::vector<bool> for_ever = kept_for_ever(entries, policy);
  const size_t audited = newest_audited(entries, policy.audited_step);
  const size_t best = policy.keep_best ? best_place(entries) : entries.size();
  auto older_permanent = std::count_if(entries.begin(), entries.end(), is_permanent);
  std::vector<Path> paths;
  std::vector<bool> gone(entries.size());
  int64_t kept = 0, kept_permanent = 0;  // usable ones so far
  for (size_t i = 0; i < entries.size(); ++i) {
    const CatalogEntry& e = entries[i];
    older_permanent -= is_permanent(e);
    const bool goes = e.ephemeral ? kept > 0 && kept + std::min<int64_t>(older_permanent, 1) >= 2
                                  : policy.keep_latest_k > 0 &&
                                        kept_permanent >= policy.keep_latest_k && !for_ever[i];
    if (goes && i != audited && i != best && e.generation <= generation) {
      paths.push_back(e.directory);
      gone[i] = true;
      continue;
    }
    kept += e.usable();
    kept_permanent += is_permanent(e);
  }
  check_what_stays(entries, gone, policy, generation);
  return paths;
}

const CatalogEntry* best_of(const std::vector<CatalogEntry>& entries) {
  std::vector<CatalogEntry> sorted = entries;
  sort_newest_first(sorted);
  const size_t place = best_place(sorted);
  if (place == sorted.size()) return nullptr;
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const CatalogEntry& e) {
    return e.directory == sorted[place].directory;
  });
  return &*found;
}

std::vector<Path> orphans(const std::vector<CatalogEntry>& entries, int64_t generation) {
  std::vector<Path> paths;
  for (const CatalogEntry& entry : entries)
    if (!entry.has_manifest && !entry.lost_manifest && entry.generation < generation)
      paths.push_back(entry.directory);
  return paths;
}

Result<void> remove_checkpoint(FileSystem& file_system, const Path& directory) {
  const auto missing_is_fine = [](const Result<void>& done) {
    return done.ok() || done.error().code == Code::kNotFound ? Result<void>() : done;
  };
  LOCKSTEP_CHECK(parse_attempt(directory.filename().string()), directory.string(),
                 " is not named as a checkpoint is");
  // What a link leads to may be another run's: the name goes, and nothing behind it.
  if (file_system.is_link(directory)) return missing_is_fine(file_system.remove(directory));
  // Without its index it is no checkpoint that lost its manifest.
  LOCKSTEP_RETURN_IF_ERROR(missing_is_fine(file_system.remove(directory / kIndexName)));
  LOCKSTEP_RETURN_IF_ERROR(missing_is_fine(file_system.remove(directory / kManifestName)));
  // Also where the manifest was gone: who removed it may have died before this.
  LOCKSTEP_RETURN_IF_ERROR(missing_is_fine(file_system.sync_directory(directory)));
  return remove_tree(file_system, directory);
}

Result<std::vector<Path>> prune(FileSystem& file_system, Catalog& catalog,
                                const RetentionPolicy& policy, int64_t generation) {
  LOCKSTEP_TRY(auto entries, catalog.look());
  std::vector<Path> gone;
  std::optional<Error> first;
  for (const Path& path : superfluous(std::move(entries), policy, generation)) {
    const auto removed = remove_checkpoint(file_system, path);
    if (removed.ok())
      gone.push_back(path);
    else if (!first)
      first = removed.error();
  }
  if (first) return *first;
  return gone;
}

}  // namespace lockstep::checkpoint
