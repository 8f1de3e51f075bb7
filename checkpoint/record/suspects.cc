#include "checkpoint/record/suspects.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::ordered_json;

constexpr const char* kMember = "suspect";

ordered_json json_of(const Suspects& found) {
  return {{"after_step", found.after_step},
          {"generation", found.generation},
          {"found_at_step", found.found_at_step},
          {"ranks", found.ranks},
          {"hosts", found.hosts}};
}

Result<std::vector<Suspects>> parse(const std::string& contents) try {
  std::vector<Suspects> all;
  const auto json = parse_json(contents);
  for (const auto& one : json.at(kMember))
    all.push_back({one.at("after_step"), one.at("generation"), one.at("found_at_step"),
                   one.at("ranks"), one.at("hosts")});
  return all;
} catch (const nlohmann::json::exception& e) {
  return Error{Code::kCorrupt, e.what()};
}

}  // namespace

bool is_suspect(const std::vector<Suspects>& all, int64_t step, int64_t generation) {
  return std::any_of(all.begin(), all.end(), [&](const Suspects& found) {
    return step > found.after_step && generation <= found.generation;
  });
}

Result<std::vector<Suspects>> read_suspects(FileSystem& file_system,
                                            const std::filesystem::path& folder) {
  const auto path = folder / kSuspectsName;
  const auto contents = read_file(file_system, path);
  if (!contents.ok() && contents.error().code == Code::kNotFound) return std::vector<Suspects>();
  if (!contents.ok()) return contents.error();
  auto all = parse(contents.value());
  if (all.ok()) return all;
  return Error{Code::kConfig, text(path.string(),
                                   ": cannot parse this file, which lists the checkpoints that no "
                                   "resume may use; repair it or remove it (",
                                   all.error().message, ")")};
}

Result<void> add_suspects(FileSystem& file_system, const std::filesystem::path& folder,
                          const Suspects& found) {
  LOCKSTEP_TRY(auto all, read_suspects(file_system, folder));
  all.push_back(found);
  ordered_json json{{kMember, ordered_json::array()}};
  for (const Suspects& each : all) json[kMember].push_back(json_of(each));
  return publish_file(file_system, folder / kSuspectsName, json.dump(2) + "\n");
}

}  // namespace lockstep::checkpoint
