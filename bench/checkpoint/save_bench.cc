// One rank of a checkpoint benchmark; bench/checkpoint_bench.py starts as many as there are ranks.
//
//   save_bench STATE FOLDER RANK WORLD_SIZE MODE [KEY=VALUE…]
//     MODE save    saves the state REPEAT times beside a compute load; a JSON line
//     MODE load    loads FOLDER's newest checkpoint REPEAT times; a JSON line
//     MODE verify  rank 0 alone; a JSON line
//   keys: codec threads nice repeat load(0|1: a thread that computes) cold(0|1: drop the cache)
//
// STATE is a checkpoint of a real run: each rank takes its share of each tensor, loaded before
// anything is timed. Votes and barriers are files in FOLDER/.sync: the ranks are processes.
#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iostream>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/load/chunk_reader.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/record/catalog.h"
#include "checkpoint/save/engine.h"
#include "checkpoint/save/retention.h"
#include "checkpoint/tools/verify.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::ordered_json;
using std::chrono::milliseconds;

double now_s() { return system_clock().monotonic_s(); }
void sleep_ms(int64_t ms) { system_clock().sleep_ns(ms * 1000000); }

double cpu_s() {  // of this process, all threads
  struct rusage used {};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

template <typename T>
T value_or_exit(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::cerr << "save_bench: " << result.error().message << "\n";
  std::exit(1);
}

// Texts by name that any process of the benchmark writes once and others wait for.
class Board {
 public:
  explicit Board(std::filesystem::path folder) : folder_(std::move(folder)) {
    (void)posix_file_system().make_directories(folder_).ok();
  }
  Result<void> put(const std::string& name, const std::string& value) {
    LOCKSTEP_TRY(const auto file, posix_file_system().create(folder_ / (name + ".tmp")));
    LOCKSTEP_RETURN_IF_ERROR(file->write_at(as_bytes(value), 0));
    return posix_file_system().rename(folder_ / (name + ".tmp"), folder_ / name);
  }
  Result<std::string> get(const std::string& name, milliseconds deadline) {
    for (int64_t waited = 0; waited < deadline.count(); ++waited) {
      if (posix_file_system().exists(folder_ / name))
        return read_file(posix_file_system(), folder_ / name);
      sleep_ms(1);
    }
    return Error{Code::kTimeout, text("nobody wrote ", name)};
  }
  void barrier(int rank, int world_size) {
    const std::string round = text("barrier", ++rounds_, ".");
    (void)put(round + std::to_string(rank), "here").ok();
    for (int r = 0; r < world_size; ++r)
      value_or_exit(get(round + std::to_string(r), milliseconds(600000)));
  }

 private:
  std::filesystem::path folder_;
  int rounds_ = 0;
};

class BoardBallot final : public Ballot {
 public:
  explicit BoardBallot(Board& board) : board_(board) {}
  Result<void> tell(const std::string& key, const std::string& words) override {
    return board_.put(file_of(key), words);
  }
  Result<std::string> hear(const std::string& key, milliseconds deadline) override {
    return board_.get(file_of(key), deadline);
  }
  void forget(const std::string&) override {}

 private:
  static std::string file_of(std::string key) {
    std::replace(key.begin(), key.end(), '/', '.');
    return key;
  }
  Board& board_;
};

// What training does meanwhile: products of 512 x 512 matrices, one after the other, as long as
// it lives.
class ComputeLoad {
 public:
  explicit ComputeLoad(bool on) {
    if (on) thread_ = std::thread([this] { compute(); });
  }
  ~ComputeLoad() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Products so far; parts count.
  double products() const { return static_cast<double>(rows_.load()) / kSize; }

 private:
  static constexpr int kSize = 512;
  void compute() {
    std::vector<float> a(kSize * kSize, 0.5f), b(kSize * kSize, 0.25f), c(kSize * kSize);
    while (!stop_) {
      for (int i = 0; i < kSize && !stop_; ++i, ++rows_)
        for (int k = 0; k < kSize; ++k) {
          const float factor = a[static_cast<size_t>(i * kSize + k)];
          const float* row = &b[static_cast<size_t>(k * kSize)];
          float* sums = &c[static_cast<size_t>(i * kSize)];
          for (int j = 0; j < kSize; ++j) sums[j] += factor * row[j];
        }
    }
  }
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> rows_ = 0;
  std::thread thread_;
};

struct Arguments {
  std::filesystem::path state, folder;
  int rank = 0, world_size = 1;
  std::string mode;
  std::map<std::string, std::string> keys;
  int64_t number(const std::string& key, int64_t otherwise) const {
    const auto at = keys.find(key);
    return at == keys.end() ? otherwise : std::stoll(at->second);
  }
};

std::filesystem::path newest_in(const std::filesystem::path& folder) {
  for (const CatalogEntry& entry : value_or_exit(list_checkpoints(posix_file_system(), folder)))
    if (entry.committed) return entry.directory;
  std::cerr << "save_bench: no checkpoint in " << folder << "\n";
  std::exit(1);
}

// This rank's share of each tensor of a checkpoint.
struct State {
  std::vector<TensorPiece> pieces;
  std::vector<std::vector<float>> values;

  State(const Manifest& manifest, int rank, int world_size) {
    for (const ManifestTensor& tensor : manifest.tensors)
      for (const auto& [kind, ignored] : tensor.fingerprint) {
        const int64_t all = element_count(tensor.global_shape);
        const int64_t first = all * rank / world_size, last = all * (rank + 1) / world_size;
        if (first == last) continue;
        pieces.push_back(
            {tensor.name, *kind_from_name(kind), tensor.global_shape, first, last - first});
        values.emplace_back(static_cast<size_t>(last - first));
      }
  }
  std::vector<LiveTarget> targets() {
    std::vector<LiveTarget> targets;
    for (size_t i = 0; i < pieces.size(); ++i)
      targets.push_back({pieces[i], std::as_writable_bytes(std::span(values[i]))});
    return targets;
  }
  std::vector<LivePiece> live() const {
    std::vector<LivePiece> live;
    for (size_t i = 0; i < pieces.size(); ++i)
      live.push_back({pieces[i], std::as_bytes(std::span(values[i]))});
    return live;
  }
  void change() {  // as an update does: every tensor moves
    for (auto& tensor : values) tensor[0] = std::nextafter(tensor[0], 1e30f);
  }
};

void drop_cache(const std::filesystem::path& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const int fd = ::open(entry.path().c_str(), O_RDONLY);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

ordered_json save_once(Engine& engine, State& state, ComputeLoad& load, int64_t step,
                       double rate_before) {
  state.change();
  const double start = now_s(), products = load.products(), cpu = cpu_s();
  value_or_exit(engine.begin_save({.step = step, .updates = step}));
  const double begun = now_s();
  engine.wait_read();
  const double staged = now_s();
  engine.drain_for(std::chrono::hours(1));
  const double over = now_s();
  const SaveReport report = engine.take_reports().at(0);
  if (!report.committed) {
    std::cerr << "save_bench: " << report.error << "\n";
    std::exit(1);
  }
  // Durable: rank 0 has published the manifest. LATEST, the index and the pruning come after it.
  const double durable_s = report.stage_s + report.write_s + report.sync_s + report.vote_s;
  const double rate = (load.products() - products) / (over - start);
  ordered_json out{{"stall_s", begun - start},      {"frozen_s", staged - start},
                   {"durable_s", durable_s},        {"over_s", over - start},
                   {"stage_s", report.stage_s},     {"write_s", report.write_s},
                   {"sync_s", report.sync_s},       {"vote_s", report.vote_s},
                   {"raw_bytes", report.raw_bytes}, {"stored_bytes", report.stored_bytes}};
  if (rate_before > 0) {
    out["compute_rate_during"] = rate / rate_before;
    out["compute_lost_s"] = (over - start) * std::max(0.0, 1 - rate / rate_before);
  } else {
    out["cpu_s"] = cpu_s() - cpu;
  }
  return out;
}

ordered_json save_mode(const Arguments& a, Board& board) {
  const Manifest manifest = value_or_exit(read_manifest(posix_file_system(), a.state));
  State state(manifest, a.rank, a.world_size);
  value_or_exit(
      load_pieces(posix_file_system(), a.state, manifest, state.targets(), reader_threads()));
  BoardBallot ballot(board);
  const auto page = ProgressPage::in_memory();
  EngineOptions options;
  options.folder = a.folder;
  options.rank = a.rank;
  options.world_size = a.world_size;
  options.generation = 1;
  options.nonce = "abcdef";
  if (a.keys.contains("codec")) options.codec = value_or_exit(codec_from_name(a.keys.at("codec")));
  options.threads = static_cast<int>(a.number("threads", 1));
  options.nice = static_cast<int>(a.number("nice", 0));
  options.retention.keep_latest_k = 2;
  HostState source(state.live());
  const auto engine =
      value_or_exit(Engine::create(options, posix_file_system(), ballot, *page, source));
  ComputeLoad load(a.number("load", 0) != 0);
  ordered_json runs = ordered_json::array();
  for (int64_t n = 1; n <= a.number("repeat", 3) + 1; ++n) {
    board.barrier(a.rank, a.world_size);
    const double products = load.products(), start = now_s();
    sleep_ms(a.number("load", 0) != 0 ? 1500 : 300);
    const double rate = (load.products() - products) / (now_s() - start);
    board.barrier(a.rank, a.world_size);
    const auto run = save_once(*engine, state, load, n, rate);
    if (n > 1) runs.push_back(run);  // the first one meets cold code and a cold disk
  }
  return runs;
}

ordered_json load_mode(const Arguments& a, Board& board) {
  const auto directory = newest_in(a.folder);
  const Manifest manifest = value_or_exit(read_manifest(posix_file_system(), directory));
  State state(manifest, a.rank, a.world_size);
  ordered_json runs = ordered_json::array();
  for (int64_t n = 0; n < a.number("repeat", 3); ++n) {
    for (auto& tensor : state.values) std::fill(tensor.begin(), tensor.end(), 0.0f);
    if (a.rank == 0 && a.number("cold", 1) != 0) drop_cache(directory);
    board.barrier(a.rank, a.world_size);
    const double start = now_s(), cpu = cpu_s();
    const auto loaded = value_or_exit(
        load_pieces(posix_file_system(), directory, manifest, state.targets(), reader_threads()));
    runs.push_back({{"load_s", now_s() - start},
                    {"cpu_s", cpu_s() - cpu},
                    {"wanted_bytes", loaded.wanted_bytes},
                    {"read_bytes", loaded.read_bytes}});
    board.barrier(a.rank, a.world_size);
  }
  return runs;
}

ordered_json verify_mode(const Arguments& a) {
  const auto directory = newest_in(a.folder);
  ordered_json runs = ordered_json::array();
  for (int64_t n = 0; n < a.number("repeat", 3); ++n) {
    drop_cache(directory);
    const double start = now_s();
    const auto problems = value_or_exit(verify(posix_file_system(), directory, reader_threads()));
    runs.push_back({{"verify_s", now_s() - start}, {"problems", problems.size()}});
  }
  return runs;
}

int run(const Arguments& a) {
  Board board(a.folder / ".sync" / a.mode);
  const ordered_json runs = a.mode == "save"   ? save_mode(a, board)
                            : a.mode == "load" ? load_mode(a, board)
                                               : verify_mode(a);
  std::cout << runs.dump() << std::endl;
  return 0;
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  if (argc < 6) {
    std::cerr << "save_bench STATE FOLDER RANK WORLD_SIZE save|load|verify [KEY=VALUE…]\n";
    return 64;
  }
  lockstep::checkpoint::Arguments a{argv[1], argv[2], std::stoi(argv[3]), std::stoi(argv[4]),
                                    argv[5], {}};
  for (int i = 6; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t at = word.find('=');
    a.keys[word.substr(0, at)] = at == std::string::npos ? "1" : word.substr(at + 1);
  }
  return lockstep::checkpoint::run(a);
}
