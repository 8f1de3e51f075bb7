#include "cli/compare/run_memory.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "cli/shared/json_fields.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

constexpr std::string_view kLineStart = "memory {\"stage\"";
constexpr double kMostGB = 1e9;  // what a line may say: beyond it is damage

int64_t bytes_of(const json& line, const char* key) { return bytes_of_gb(number_or(line, key, 0)); }

StageMemory& stage_named(const std::string& stage, RunMemory& memory) {
  const auto found = std::find_if(memory.stages.begin(), memory.stages.end(),
                                  [&](const StageMemory& each) { return each.stage == stage; });
  if (found != memory.stages.end()) return *found;
  return memory.stages.emplace_back(StageMemory{stage, 0, 0});
}

}  // namespace

std::optional<int64_t> RunMemory::most_bytes() const {
  std::optional<int64_t> most;
  for (const auto& [rank, bytes] : peak_bytes) most = std::max(most.value_or(0), bytes);
  return most;
}

int64_t bytes_of_gb(double gb) { return gb > 0 && gb < kMostGB ? std::llround(gb * 1e9) : 0; }

void add_memory_lines(std::string_view log, RunMemory& memory) {
  for (const std::string& words : split(log, '\n')) {
    const size_t start = words.find(kLineStart);
    if (start == words.npos) continue;
    const json line = parse_json(std::string_view(words).substr(words.find('{', start)),
                                 /*allow_exceptions=*/false);
    if (!line.is_object()) continue;
    const int64_t rank = integer_or(line, "rank", -1);
    const std::string stage = string_or_empty(line, "stage");
    if (rank < 0 || stage.empty()) continue;
    StageMemory& of_stage = stage_named(stage, memory);
    of_stage.allocated_bytes =
        std::max(of_stage.allocated_bytes, bytes_of(line, "cuda_memory_allocated_GB"));
    of_stage.peak_bytes =
        std::max(of_stage.peak_bytes, bytes_of(line, "stage_max_memory_allocated_GB"));
    int64_t& peak = memory.peak_bytes[rank];
    peak = std::max(peak, bytes_of(line, "cuda_max_memory_allocated_GB"));
  }
}

RunMemory read_run_memory(FileSystem& file_system, const std::filesystem::path& folder) {
  RunMemory memory;
  const auto names = file_system.list(folder / "logs");
  if (!names) return memory;
  for (const std::string& name : names.value()) {
    if (!name.starts_with("rank_") || !name.ends_with(".log")) continue;
    if (const auto log = read_file(file_system, folder / "logs" / name))
      add_memory_lines(log.value(), memory);
  }
  return memory;
}

}  // namespace lockstep::cli
