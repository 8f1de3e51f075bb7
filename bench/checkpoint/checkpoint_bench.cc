// Speed of a checkpoint's parts and of a whole save: one JSON line.
//
//   checkpoint_bench DIR [MIB] [THREADS] [CODEC] [REPEAT]
//
// State: normal numbers for weights and m, squares for v, as AdamW leaves them. Parts are GB of raw
// bytes a second on one core, the median chunk. A save is compared, in turn, with a plain write and
// fsync of as many bytes as the state has, 1 MiB a call, to the same folder; medians of REPEAT.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/hash.h"
#include "checkpoint/catalog.h"
#include "checkpoint/chunk_codec.h"
#include "checkpoint/engine.h"
#include "checkpoint/memory_ballot.h"
#include "tests/support/newest_valid.h"

namespace lockstep::checkpoint {
namespace {

struct Arguments {
  std::filesystem::path folder;
  int64_t mib = 240;
  int threads = 1;
  std::string codec = "zstd";
  int repeat = 5;
};

double seconds_of(const std::function<void()>& work) {
  const double start_s = system_clock().monotonic_s();
  work();
  return system_clock().monotonic_s() - start_s;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

double uniform(uint64_t key) { return (static_cast<double>(mix64(key) >> 11) + 0.5) * 0x1p-53; }

std::vector<float> normal(size_t count, uint64_t seed, bool squared) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const double radius = std::sqrt(-2.0 * std::log(uniform(seed + 2 * i)));
    const double value = 0.02 * radius * std::cos(6.283185307179586 * uniform(seed + 2 * i + 1));
    values[i] = static_cast<float>(squared ? value * value : value);
  }
  return values;
}

nlohmann::ordered_json parts_of(const std::vector<float>& values, Codec codec, int repeat) {
  const auto raw = std::as_bytes(std::span(values));
  constexpr size_t kChunkBytes = kChunkElements * 4;
  const size_t chunks = raw.size() / kChunkBytes, used = chunks * kChunkBytes;
  std::vector<EncodedChunk> encoded(chunks);
  std::vector<std::byte> scratch(kChunkBytes);
  ChunkEncoder encoder(codec);
  ChunkDecoder decoder(codec);
  const auto chunk = [&](size_t i) { return raw.subspan(i * kChunkBytes, kChunkBytes); };
  volatile uint64_t sink = 0;
  const auto each = [&](const std::function<void(size_t)>& work) {
    std::vector<double> seconds;
    for (int n = 0; n < repeat; ++n)
      for (size_t i = 0; i < chunks; ++i) seconds.push_back(seconds_of([&] { work(i); }));
    return static_cast<double>(kChunkBytes) * 1e-9 / median(seconds);
  };
  nlohmann::ordered_json out;
  out["encode"] = each([&](size_t i) { encoder.encode(chunk(i), kChunkBytes, true, encoded[i]); });
  out["decode"] = each([&](size_t i) {
    const auto stored = std::span(encoded[i].stored).first(encoded[i].stored_bytes);
    sink = sink + decoder.decode(stored, encoded[i].filter_mask, scratch).ok();
  });
  out["shuffle"] = each([&](size_t i) { shuffle_words(chunk(i), scratch); });
  out["fletcher32"] = each([&](size_t i) { sink = sink + fletcher32(chunk(i)); });
  out["crc32c"] = each([&](size_t i) { sink = sink + crc32c(chunk(i)); });
  out["xxh3"] = each([&](size_t i) { sink = sink + xxh3_64(chunk(i)); });
  out["fingerprint"] = each([&](size_t i) { sink = sink + fingerprint(chunk(i), 0); });
  size_t stored = 0;
  for (const EncodedChunk& e : encoded) stored += e.stored_bytes;
  out["ratio"] = static_cast<double>(used) / static_cast<double>(stored);
  return out;
}

Result<double> plain_write_s(const std::filesystem::path& path, std::span<const std::byte> bytes,
                             int64_t total) {
  FileSystem& disk = posix_file_system();
  const double start_s = system_clock().monotonic_s();
  LOCKSTEP_TRY(const auto file, disk.create(path));
  for (int64_t at = 0; at < total; at += int64_t{1} << 20)
    LOCKSTEP_RETURN_IF_ERROR(file->write_at(bytes, at));
  LOCKSTEP_RETURN_IF_ERROR(file->sync());
  const double seconds = system_clock().monotonic_s() - start_s;
  LOCKSTEP_RETURN_IF_ERROR(disk.remove(path));
  return seconds;
}

std::vector<LiveTarget> targets_of(const std::vector<LivePiece>& layout,
                                   std::vector<std::vector<float>>& state) {
  std::vector<LiveTarget> targets;
  for (size_t i = 0; i < state.size(); ++i)
    targets.push_back({layout[i].piece, std::as_writable_bytes(std::span(state[i]))});
  return targets;
}

struct Saves {  // seconds, one for each
  std::vector<double> whole, stage, write, sync, plain;
  SaveReport last;
};

Result<Saves> save_repeatedly(const Arguments& a, Engine& engine, std::vector<float>& weights) {
  Saves saves;
  for (int i = 0; i <= a.repeat; ++i) {  // the first one warms up
    weights[0] += 1.0f;
    const auto block = std::as_bytes(std::span(weights)).first(1 << 20);
    LOCKSTEP_TRY(const double plain,
                 plain_write_s(a.folder / "checkpoint_bench.plain", block, a.mib << 20));
    const double start_s = system_clock().monotonic_s();
    LOCKSTEP_TRY([[maybe_unused]] const bool begun, engine.begin_save({.step = i, .updates = i}));
    engine.drain();
    const double whole = system_clock().monotonic_s() - start_s;
    saves.last = engine.take_reports().front();
    if (!saves.last.committed) return Error{Code::kIo, saves.last.error};
    if (i == 0) continue;
    saves.plain.push_back(plain);
    saves.whole.push_back(whole);
    saves.stage.push_back(saves.last.stage_s);
    saves.write.push_back(saves.last.write_s);
    saves.sync.push_back(saves.last.sync_s);
  }
  return saves;
}

Result<nlohmann::ordered_json> run(const Arguments& a) {
  FileSystem& disk = posix_file_system();
  LOCKSTEP_RETURN_IF_ERROR(disk.make_directories(a.folder));
  const int64_t per_tensor = (a.mib << 20) / 12;
  const Kind kinds[] = {Kind::kParam, Kind::kAdamM, Kind::kAdamV};
  std::vector<std::vector<float>> state;
  std::vector<LivePiece> layout;
  for (Kind kind : kinds) {
    state.push_back(normal(static_cast<size_t>(per_tensor), static_cast<uint64_t>(kind) << 40,
                           kind == Kind::kAdamV));
    layout.push_back({{"w", kind, {per_tensor}, 0, per_tensor},
                      std::as_bytes(std::span(state.back()))});
  }
  EngineOptions options;
  options.folder = a.folder / "checkpoint_bench";
  options.nonce = "be7c";
  options.codec = a.codec;
  options.threads = a.threads;
  options.retention.keep_latest_k = 2;
  LOCKSTEP_TRY(const Codec codec, codec_from_name(a.codec));
  nlohmann::ordered_json out{{"mib", a.mib}, {"threads", a.threads}, {"codec", a.codec}};
  out["gbps_per_core"] = parts_of(state[0], codec, a.repeat);
  MemoryBallot ballot;
  const auto page = ProgressPage::in_memory();
  LOCKSTEP_TRY(const auto engine, Engine::create(options, disk, ballot, *page, layout));
  LOCKSTEP_TRY(const Saves saves, save_repeatedly(a, *engine, state[0]));
  const SaveReport& report = saves.last;
  LOCKSTEP_TRY(const auto loaded, test_support::newest_valid(
                                      disk, options.folder, targets_of(layout, state), a.threads));
  out["load_gbps"] = static_cast<double>(report.raw_bytes) * 1e-9 / loaded.statistics.seconds;
  const double gigabytes = static_cast<double>(report.raw_bytes) * 1e-9;
  out["save_gbps"] = gigabytes / median(saves.whole);
  out["plain_write_fsync_gbps"] = gigabytes / median(saves.plain);
  out["stage_s"] = median(saves.stage);
  out["write_s"] = median(saves.write);
  out["sync_s"] = median(saves.sync);
  out["stored_over_raw"] =
      static_cast<double>(report.stored_bytes) / static_cast<double>(report.raw_bytes);
  LOCKSTEP_RETURN_IF_ERROR(remove_tree(disk, options.folder));
  return out;
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  lockstep::checkpoint::Arguments a;
  if (argc < 2 || argc > 6) {
    std::cerr << "checkpoint_bench DIR [MIB] [THREADS] [CODEC] [REPEAT]\n";
    return 64;
  }
  a.folder = argv[1];
  if (argc > 2) a.mib = std::stoll(argv[2]);
  if (argc > 3) a.threads = std::stoi(argv[3]);
  if (argc > 4) a.codec = argv[4];
  if (argc > 5) a.repeat = std::stoi(argv[5]);
  const auto measured = lockstep::checkpoint::run(a);
  if (!measured.ok()) {
    std::cerr << "checkpoint_bench: " << measured.error().message << "\n";
    return 1;
  }
  std::cout << measured.value().dump() << "\n";
  return 0;
}
