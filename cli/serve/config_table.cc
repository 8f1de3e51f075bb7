#include "cli/serve/config_table.h"

#include <algorithm>
#include <map>

#include "base/json.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kBesides[] = {"parameters", "trained_parameters", "world_size", "transport"};

class Table {
 public:
  explicit Table(size_t runs) : runs_(runs) {}

  void add(const std::string& key, size_t run, const ordered_json& value) {
    const auto [place, is_new] = places_.try_emplace(key, rows_.size());
    if (is_new) rows_.push_back({key, std::vector<std::string>(runs_), false});
    rows_[place->second].values[run] =
        value.is_string() ? value.get<std::string>() : dump_json(value);
  }
  // Sections are objects; what stands in them is a value.
  void add_config(size_t run, const ordered_json& config) {
    for (const auto& [section, keys] : config.items()) {
      if (!keys.is_object()) {
        add(section, run, keys);
        continue;
      }
      for (const auto& [key, value] : keys.items()) add(section + "." + key, run, value);
    }
  }
  std::vector<ConfigRow>& rows() { return rows_; }

 private:
  const size_t runs_;
  std::vector<ConfigRow> rows_;
  std::map<std::string, size_t> places_;
};

}  // namespace

std::vector<ConfigRow> config_table(const std::vector<ordered_json>& run_args) {
  Table table(run_args.size());
  for (size_t run = 0; run < run_args.size(); ++run) {
    const ordered_json& args = run_args[run];
    if (!args.is_object()) continue;
    if (const auto config = args.find("config"); config != args.end() && config->is_object())
      table.add_config(run, *config);
    for (const char* key : kBesides)
      if (const auto value = args.find(key); value != args.end()) table.add(key, run, *value);
  }
  for (ConfigRow& row : table.rows()) {
    const std::string* first = nullptr;
    for (size_t run = 0; run < run_args.size(); ++run) {
      if (!run_args[run].is_object()) continue;
      if (first == nullptr) first = &row.values[run];
      row.differs = row.differs || row.values[run] != *first;
    }
  }
  return std::move(table.rows());
}

}  // namespace lockstep::cli
