// Speed of everything that touches a checkpoint's bytes, on the state of a real checkpoint.
//
//   codec_bench CHECKPOINT [REPEAT] [MIB]     e.g. results/a/checkpoints/step_00000150.g1-edbedc
//
// One JSON line for each kind (param, adam_m, adam_v) and one for all three: GB of raw bytes a
// second on one core, the median over the chunks, REPEAT times each, MIB of each kind; and
// stored_over_raw. "stock" are zstd's own frames of shuffled chunks, without any checksum.
#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_c_literalCompressionMode
#include <zstd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "checkpoint/codec/chunk_codec.h"
#include "checkpoint/codec/plane_frame.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/record/catalog.h"

namespace lockstep::checkpoint {
namespace {

constexpr size_t kChunkBytes = kChunkElements * 4;
using Json = nlohmann::ordered_json;
using Bytes = std::vector<std::byte>;

// Medians over chunks and repetitions: other programs of the machine disturb few chunks.
class Stopwatch {
 public:
  Stopwatch(size_t chunks, int repeat) : chunks_(chunks), repeat_(repeat) {}
  double gbps(const std::function<void(size_t)>& work) const {
    std::vector<int64_t> ns;
    for (int n = 0; n < repeat_; ++n)
      for (size_t i = 0; i < chunks_; ++i) {
        const int64_t start_ns = system_clock().monotonic_ns();
        work(i);
        ns.push_back(system_clock().monotonic_ns() - start_ns);
      }
    const auto middle = ns.begin() + static_cast<ptrdiff_t>(ns.size() / 2);
    std::nth_element(ns.begin(), middle, ns.end());
    return static_cast<double>(kChunkBytes) / static_cast<double>(*middle);
  }

 private:
  size_t chunks_;
  int repeat_;
};

double ratio(size_t stored, size_t chunks) {
  return static_cast<double>(stored) / static_cast<double>(chunks * kChunkBytes);
}

Json stock_of(const std::vector<Bytes>& shuffled, int level, bool literals,
              const Stopwatch& watch) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> zstd(ZSTD_createCCtx(),
                                                                  &ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(zstd.get(), ZSTD_c_compressionLevel, level);
  if (literals) ZSTD_CCtx_setParameter(zstd.get(), ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
  std::vector<Bytes> frames(shuffled.size(), Bytes(ZSTD_compressBound(kChunkBytes)));
  std::vector<size_t> sizes(shuffled.size());
  Bytes back(kChunkBytes);
  Json out;
  out["encode"] = watch.gbps([&](size_t i) {
    sizes[i] = ZSTD_compress2(zstd.get(), frames[i].data(), frames[i].size(), shuffled[i].data(),
                              kChunkBytes);
  });
  out["decode"] = watch.gbps(
      [&](size_t i) { ZSTD_decompress(back.data(), back.size(), frames[i].data(), sizes[i]); });
  size_t total = 0;
  for (size_t size : sizes) total += size;
  out["stored_over_raw"] = ratio(total, shuffled.size());
  return out;
}

// The steps of encode and decode one by one, each over a whole chunk.
Json stages_of(const std::vector<Bytes>& chunks, const std::vector<Bytes>& shuffled,
               const Stopwatch& watch) {
  volatile uint64_t sink = 0;
  Bytes out(kChunkBytes + 4096);
  PlaneFrameWriter writer;
  PlaneFrameReader reader;
  std::vector<Bytes> frames;
  for (const Bytes& chunk : chunks) {
    const size_t noise = std::min(noise_planes(chunk), kPlanes - 1);
    if (!writer.begin(kChunkBytes, noise, out)) continue;
    writer.add(chunk);
    frames.emplace_back(out.begin(), out.begin() + static_cast<ptrdiff_t>(writer.finish()));
  }
  LOCKSTEP_CHECK(frames.size() == chunks.size(), frames.size());
  Json json;
  json["choose_planes"] = watch.gbps([&](size_t i) { sink = sink + noise_planes(chunks[i]); });
  json["shuffle"] =
      watch.gbps([&](size_t i) { shuffle_words(chunks[i], std::span(out).first(kChunkBytes)); });
  json["shuffle_and_zstd"] = watch.gbps([&](size_t i) {
    writer.begin(kChunkBytes, std::min(noise_planes(chunks[i]), kPlanes - 1), out);
    writer.add(chunks[i]);
    sink = sink + writer.finish();
  });
  json["unzstd"] =
      watch.gbps([&](size_t i) { sink = sink + reader.open(frames[i], kChunkBytes).ok(); });
  json["unshuffle"] = watch.gbps(
      [&](size_t i) { unshuffle_words(shuffled[i], std::span(out).first(kChunkBytes)); });
  json["fletcher32"] = watch.gbps([&](size_t i) { sink = sink + fletcher32(chunks[i]); });
  json["crc32c"] = watch.gbps([&](size_t i) { sink = sink + crc32c(chunks[i]); });
  json["xxh3"] = watch.gbps([&](size_t i) { sink = sink + xxh3_64(chunks[i]); });
  json["fingerprint"] = watch.gbps([&](size_t i) { sink = sink + fingerprint(chunks[i], 0); });
  json["copy_with_fingerprint"] = watch.gbps([&](size_t i) {
    sink = sink + copy_with_fingerprint(chunks[i], std::span(out).first(kChunkBytes), 0);
  });
  return json;
}

// What a save and a load do to a chunk, with every checksum.
Json pipeline_of(const std::vector<Bytes>& chunks, Codec codec, const Stopwatch& watch) {
  std::vector<EncodedChunk> encoded(chunks.size());
  ChunkEncoder encoder(codec);
  ChunkDecoder decoder(codec);
  Bytes back(kChunkBytes);
  Json json;
  json["encode"] =
      watch.gbps([&](size_t i) { encoder.encode(chunks[i], kChunkBytes, true, encoded[i]); });
  json["decode"] = watch.gbps([&](size_t i) {
    const EncodedChunk& e = encoded[i];
    const auto stored = std::span(e.stored).first(e.stored_bytes);
    LOCKSTEP_CHECK(crc32c(stored) == e.crc32c, "chunk ", i);
    const auto sums = decoder.decode(stored, e.filter_mask, back);
    LOCKSTEP_CHECK(sums.ok() && sums.value().xxh3 == e.xxh3, "chunk ", i);
  });
  size_t total = 0;
  for (const EncodedChunk& e : encoded) total += e.stored_bytes;
  json["stored_over_raw"] = ratio(total, chunks.size());
  return json;
}

Json measure(const std::string& kind, const std::vector<Bytes>& chunks, int repeat) {
  const Stopwatch watch(chunks.size(), repeat);
  std::vector<Bytes> shuffled(chunks.size(), Bytes(kChunkBytes));
  for (size_t i = 0; i < chunks.size(); ++i) shuffle_words(chunks[i], shuffled[i]);
  Json json{{"kind", kind}, {"chunks", chunks.size()}};
  json["zstd"] = pipeline_of(chunks, Codec::kZstd, watch);
  json["none"] = pipeline_of(chunks, Codec::kNone, watch);
  json["stages"] = stages_of(chunks, shuffled, watch);
  json["stock_-100_literals"] = stock_of(shuffled, -100, true, watch);
  json["stock_1"] = stock_of(shuffled, 1, false, watch);
  return json;
}

// All elements of one kind, one tensor after another, in whole chunks.
Result<std::vector<Bytes>> chunks_of(const std::filesystem::path& directory,
                                     const Manifest& manifest, Kind kind, size_t most) {
  std::vector<std::pair<TensorPiece, Bytes>> tensors;
  for (const ManifestTensor& t : manifest.tensors) {
    const int64_t length = element_count(t.global_shape);
    tensors.push_back(
        {{t.name, kind, t.global_shape, 0, length}, Bytes(static_cast<size_t>(length) * 4)});
  }
  std::vector<LiveTarget> targets;
  for (auto& [piece, bytes] : tensors) targets.push_back({piece, bytes});
  LOCKSTEP_RETURN_IF_ERROR(load_pieces(posix_file_system(), directory, manifest, targets, 1));
  Bytes all;
  for (const auto& [piece, bytes] : tensors) all.insert(all.end(), bytes.begin(), bytes.end());
  std::vector<Bytes> chunks;
  for (size_t at = 0; at + kChunkBytes <= all.size() && chunks.size() < most; at += kChunkBytes)
    chunks.emplace_back(all.begin() + static_cast<ptrdiff_t>(at),
                        all.begin() + static_cast<ptrdiff_t>(at + kChunkBytes));
  return chunks;
}

Result<void> run(const std::filesystem::path& directory, int repeat, size_t most) {
  LOCKSTEP_TRY(const Manifest manifest, read_manifest(posix_file_system(), directory));
  std::vector<Bytes> all;
  for (Kind kind : {Kind::kParam, Kind::kAdamM, Kind::kAdamV}) {
    LOCKSTEP_TRY(const auto chunks, chunks_of(directory, manifest, kind, most));
    if (chunks.empty()) return Error{Code::kConfig, "less than a chunk (1 MiB) of state"};
    std::cout << measure(kind_name(kind), chunks, repeat).dump() << std::endl;
    all.insert(all.end(), chunks.begin(), chunks.end());
  }
  std::cout << measure("all", all, repeat).dump() << "\n";
  return {};
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::cerr << "codec_bench CHECKPOINT [REPEAT] [MIB]\n";
    return 64;
  }
  const int repeat = argc > 2 ? std::stoi(argv[2]) : 3;
  const size_t most = argc > 3 ? std::stoul(argv[3]) : 64;
  const auto measured = lockstep::checkpoint::run(argv[1], repeat, most);
  if (!measured.ok()) {
    std::cerr << "codec_bench: " << measured.error().message << "\n";
    return 1;
  }
  return 0;
}
