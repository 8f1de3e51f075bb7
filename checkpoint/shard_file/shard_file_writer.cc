#include "checkpoint/shard_file/shard_file_writer.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/shard_file/chunk_table.h"
#include "checkpoint/shard_file/file_driver.h"
#include "checkpoint/shard_file/hdf5_call.h"

namespace lockstep::checkpoint {
namespace {

constexpr hsize_t kMetadataBlockBytes = 64 << 10;  // object headers lie together, between chunks

// HDF5 never gives metadata back to the file before close: after a failed write there is nothing
// that it would have to read again.
Result<void> keep_metadata_in_memory(hid_t access) {
  H5AC_cache_config_t config;
  config.version = H5AC__CURR_CACHE_CONFIG_VERSION;
  if (H5Pget_mdc_config(access, &config) < 0) return hdf5_error("metadata cache");
  config.evictions_enabled = false;
  config.incr_mode = H5C_incr__off;
  config.flash_incr_mode = H5C_flash_incr__off;
  config.decr_mode = H5C_decr__off;
  if (H5Pset_mdc_config(access, &config) < 0) return hdf5_error("metadata cache");
  return {};
}

Result<Hdf5Id> create_file(const std::string& name, DriverFile& file) {
  const Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose);
  if (!access || H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110) < 0 ||
      H5Pset_meta_block_size(access.get(), kMetadataBlockBytes) < 0 ||
      H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG) < 0)
    return hdf5_error("file access properties");
  LOCKSTEP_RETURN_IF_ERROR(keep_metadata_in_memory(access.get()));
  LOCKSTEP_RETURN_IF_ERROR(use_driver(access.get(), file));
  LOCKSTEP_TRY(const Hdf5Id creation, untimed_file_properties());
  Hdf5Id id(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), &H5Fclose);
  if (!id) return hdf5_error(text("creating ", name));
  return id;
}

Result<Hdf5Id> creation_properties(Codec codec, hsize_t chunk_elements) {
  Hdf5Id properties(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
  const hid_t id = properties.get();
  const unsigned level = static_cast<unsigned>(kZstdLevel);
  bool ok = id >= 0 && H5Pset_chunk(id, 1, &chunk_elements) >= 0 &&
            H5Pset_fill_time(id, H5D_FILL_TIME_NEVER) >= 0 && H5Pset_obj_track_times(id, 0) >= 0;
  if (codec != Codec::kNone) ok = ok && H5Pset_shuffle(id) >= 0;
  if (codec == Codec::kZstd)
    ok = ok && H5Pset_filter(id, kZstdFilterId, H5Z_FLAG_MANDATORY, 1, &level) >= 0;
  if (codec == Codec::kGzip) ok = ok && H5Pset_deflate(id, 1) >= 0;
  if (!ok || H5Pset_fletcher32(id) < 0) return hdf5_error("dataset properties");
  return properties;
}

Result<void> describe(hid_t dataset, const TensorPiece& piece, int64_t index) {
  LOCKSTEP_RETURN_IF_ERROR(set_attribute(dataset, "name", piece.name));
  LOCKSTEP_RETURN_IF_ERROR(set_attribute(dataset, "kind", std::string(kind_name(piece.kind))));
  LOCKSTEP_RETURN_IF_ERROR(set_attribute(dataset, "dtype", std::string(dtype_word(piece.dtype))));
  LOCKSTEP_RETURN_IF_ERROR(set_attribute(dataset, "global_shape", piece.global_shape));
  LOCKSTEP_RETURN_IF_ERROR(set_attribute(dataset, "flat_start", piece.flat_start));
  return set_attribute(dataset, "dataset_index", index);
}

Result<Hdf5Id> row_type() {
  Hdf5Id type(H5Tcreate(H5T_COMPOUND, sizeof(ChunkRow)), &H5Tclose);
  const auto add = [&](const char* name, size_t offset, hid_t field) {
    return H5Tinsert(type.get(), name, offset, field) >= 0;
  };
  const bool ok = type && add("dataset", offsetof(ChunkRow, dataset), H5T_STD_U32LE) &&
                  add("chunk", offsetof(ChunkRow, chunk), H5T_STD_U32LE) &&
                  add("file_offset", offsetof(ChunkRow, file_offset), H5T_STD_U64LE) &&
                  add("stored_bytes", offsetof(ChunkRow, stored_bytes), H5T_STD_U32LE) &&
                  add("raw_bytes", offsetof(ChunkRow, raw_bytes), H5T_STD_U32LE) &&
                  add("filter_mask", offsetof(ChunkRow, filter_mask), H5T_STD_U32LE) &&
                  add("crc32c", offsetof(ChunkRow, crc32c), H5T_STD_U32LE) &&
                  add("xxh3", offsetof(ChunkRow, xxh3), H5T_STD_U64LE);
  if (!ok) return hdf5_error("the chunk table's type");
  return type;
}

}  // namespace

std::string shard_file_name(int rank) { return "rank_" + zero_padded(rank, 5) + ".h5"; }

struct ShardFileWriter::Impl {
  // A rank's datasets, one after the other.
  struct Lane {
    Hdf5Id dataset;
    int64_t index = -1;  // of it, in the file
    bool ended = false;  // a neighbour's
  };

  Impl(FileSystem& fs, ChunkPipeline& pipeline, const Options& o)
      : file_system(fs),
        codec(pipeline.codec()),
        options(o),
        path(o.directory / shard_file_name(o.rank)),
        lanes(o.neighbours.size()),
        encoder(pipeline, o.chunking, [this](const FileChunk& chunk) { return take_own(chunk); }) {
    digest.file.name = shard_file_name(o.rank);
  }
  ~Impl() {
    encoder.discard();
    close_handles();
  }

  enum class State { kOpen, kSealed, kAbandoned };
  void check_new(const TensorPiece& piece);
  Result<void> check_whole() const;
  Result<void> create();
  Result<void> open_dataset(Lane& lane, const TensorPiece& piece);
  Result<void> take_own(const FileChunk& chunk);
  Result<bool> take_one_of_each();
  Result<void> write(Lane& lane, const FileChunk& chunk);
  Result<void> write_chunk(Lane& lane, const FileChunk& chunk);
  Result<void> write_table();
  Result<void> close_file();
  // What went wrong below HDF5 says more than what HDF5 makes of it.
  Result<void> below(Result<void> result) const {
    if (driver_file.error) return *driver_file.error;
    return result.ok() ? result : result.error().in(path.string());
  }
  void close_handles() {
    const Hdf5Lock lock;
    close_datasets();
    link_properties = Hdf5Id();
    hdf5_file = Hdf5Id();
  }
  // Requires: Hdf5Lock held.
  void close_datasets() {
    own.dataset = Hdf5Id();
    for (Lane& lane : lanes) lane.dataset = Hdf5Id();
  }

  FileSystem& file_system;
  const Codec codec;
  const Options options;
  const std::filesystem::path path;
  State state = State::kOpen;
  std::map<std::string, std::map<int64_t, int64_t>> appended;  // by tensor: ends, by starts
  DriverFile driver_file;                                      // outlives the handles
  Hdf5Id hdf5_file, link_properties;
  Lane own;
  std::vector<Lane> lanes;  // of the neighbours
  std::set<Kind> groups;    // that exist
  std::vector<ChunkRow> rows;
  ShardDigest digest;
  PieceEncoder encoder;
};

// This rank's pieces are new and do not overlap. Neighbours' are theirs to answer for: whoever
// merges the votes looks at them.
void ShardFileWriter::Impl::check_new(const TensorPiece& piece) {
  LOCKSTEP_CHECK(state == State::kOpen, piece.dataset_path(), " comes after the file was sealed");
  auto& ends = appended[piece.tensor_key()];
  const int64_t end = piece.flat_start + piece.length;
  const auto next = ends.lower_bound(piece.flat_start);
  LOCKSTEP_CHECK((next == ends.end() || next->first >= end) &&
                     (next == ends.begin() || std::prev(next)->second <= piece.flat_start),
                 piece.dataset_path(), ": elements up to ", end, " overlap a piece before");
  ends.emplace(piece.flat_start, end);
}

// Every chunk of every dataset has its row. Errors: kCorrupt of what a neighbour handed over.
Result<void> ShardFileWriter::Impl::check_whole() const {
  std::vector<int64_t> chunks(digest.file.pieces.size(), 0);
  for (const ChunkRow& row : rows) ++chunks[row.dataset];
  for (size_t i = 0; i < chunks.size(); ++i) {
    const TensorPiece& piece = digest.file.pieces[i];
    const int64_t wanted = chunk_count(piece.length, options.chunking);
    const auto mine = appended.find(piece.tensor_key());
    const bool is_own = mine != appended.end() && mine->second.contains(piece.flat_start);
    LOCKSTEP_CHECK(!is_own || chunks[i] == wanted, piece.dataset_path(), " has ", chunks[i],
                   " chunks of ", wanted);
    if (chunks[i] != wanted)
      return Error{Code::kCorrupt, text(piece.dataset_path(), ": a neighbour handed over ",
                                        chunks[i], " of its ", wanted, " chunks")};
  }
  return {};
}

Result<void> ShardFileWriter::Impl::create() {
  LOCKSTEP_TRY(driver_file.file, file_system.create_direct(path));
  const Hdf5Lock lock;
  LOCKSTEP_RETURN_IF_ERROR(register_zstd_filter());
  LOCKSTEP_TRY(hdf5_file, create_file(path.string(), driver_file));
  link_properties = Hdf5Id(H5Pcreate(H5P_LINK_CREATE), &H5Pclose);
  if (H5Pset_create_intermediate_group(link_properties.get(), 1) < 0)
    return hdf5_error("link properties");
  const hid_t root = hdf5_file.get();
  LOCKSTEP_RETURN_IF_ERROR(set_attribute(root, "format", std::string("lockstep-checkpoint")));
  LOCKSTEP_RETURN_IF_ERROR(set_attribute(root, "format_version", kFormatVersion));
  LOCKSTEP_RETURN_IF_ERROR(set_attribute(root, "step", options.step));
  LOCKSTEP_RETURN_IF_ERROR(set_attribute(root, "generation", options.generation));
  LOCKSTEP_RETURN_IF_ERROR(set_attribute(root, "rank", int64_t{options.rank}));
  LOCKSTEP_RETURN_IF_ERROR(set_attribute(root, "world_size", options.world_size));
  return below({});
}

// Requires: Hdf5Lock held.
Result<void> ShardFileWriter::Impl::open_dataset(Lane& lane, const TensorPiece& piece) {
  lane.index = static_cast<int64_t>(digest.file.pieces.size());
  digest.file.pieces.push_back(piece);
  digest.raw_bytes += piece.size_bytes();
  const hsize_t length = static_cast<hsize_t>(piece.length);
  const auto chunk = static_cast<hsize_t>(chunk_elements_of(piece.length, options.chunking));
  if (groups.insert(piece.kind).second)
    LOCKSTEP_RETURN_IF_ERROR(
        create_untimed_group(hdf5_file.get(), text("/", kind_name(piece.kind))));
  LOCKSTEP_TRY(const Hdf5Id properties, creation_properties(codec, chunk));
  const Hdf5Id space(H5Screate_simple(1, &length, nullptr), &H5Sclose);
  LOCKSTEP_TRY(const Hdf5Id type, element_type(piece.dtype));
  lane.dataset =
      Hdf5Id(H5Dcreate2(hdf5_file.get(), piece.dataset_path().c_str(), type.get(), space.get(),
                        link_properties.get(), properties.get(), H5P_DEFAULT),
             &H5Dclose);
  if (!lane.dataset) return hdf5_error(text("creating ", piece.dataset_path()));
  return describe(lane.dataset.get(), piece, lane.index);
}

// Requires: Hdf5Lock held.
Result<void> ShardFileWriter::Impl::write_chunk(Lane& lane, const FileChunk& chunk) {
  if (chunk.index == 0) LOCKSTEP_RETURN_IF_ERROR(open_dataset(lane, *chunk.piece));
  const StoredChunk& bytes = chunk.bytes;
  const auto stored_bytes = static_cast<int64_t>(bytes.bytes.size());
  const hsize_t first_element = static_cast<hsize_t>(chunk.index) * bytes.raw_bytes /
                                static_cast<hsize_t>(chunk.piece->element_bytes());
  driver_file.last_chunk_offset = -1;
  driver_file.expect_chunk = true;
  if (H5Dwrite_chunk(lane.dataset.get(), H5P_DEFAULT, bytes.filter_mask, &first_element,
                     bytes.bytes.size(), bytes.bytes.data()) < 0)
    return hdf5_error(text("writing chunk ", chunk.index));
  if (driver_file.error) return *driver_file.error;
  LOCKSTEP_CHECK(driver_file.last_chunk_offset >= 0 && driver_file.last_chunk_bytes == stored_bytes,
                 "HDF5 wrote ", driver_file.last_chunk_bytes, " bytes @",
                 driver_file.last_chunk_offset, " for a chunk of ", stored_bytes);
  rows.push_back({static_cast<uint32_t>(lane.index), static_cast<uint32_t>(chunk.index),
                  static_cast<uint64_t>(driver_file.last_chunk_offset),
                  static_cast<uint32_t>(stored_bytes), static_cast<uint32_t>(bytes.raw_bytes),
                  bytes.filter_mask, bytes.crc32c, bytes.xxh3});
  return {};
}

Result<void> ShardFileWriter::Impl::write(Lane& lane, const FileChunk& chunk) {
  const Hdf5Lock lock;
  return below(write_chunk(lane, chunk));
}

Result<void> ShardFileWriter::Impl::take_own(const FileChunk& chunk) {
  LOCKSTEP_RETURN_IF_ERROR(write(own, chunk));
  const auto taken = take_one_of_each();
  return taken.ok() ? Result<void>() : Result<void>(taken.error());
}

// False: no neighbour has any more.
Result<bool> ShardFileWriter::Impl::take_one_of_each() {
  bool any = false;
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (lanes[i].ended) continue;
    auto chunk = options.neighbours[i].front();
    if (!chunk.ok()) return chunk.error().in(digest.file.name);
    lanes[i].ended = !chunk.value();
    if (lanes[i].ended) continue;
    LOCKSTEP_RETURN_IF_ERROR(write(lanes[i], *chunk.value()));
    options.neighbours[i].pop();
    any = true;
  }
  return any;
}

// Requires: Hdf5Lock held.
Result<void> ShardFileWriter::Impl::write_table() {
  LOCKSTEP_RETURN_IF_ERROR(check_whole());
  std::sort(rows.begin(), rows.end(), [](const ChunkRow& a, const ChunkRow& b) {
    return std::tie(a.dataset, a.chunk) < std::tie(b.dataset, b.chunk);
  });
  LOCKSTEP_TRY(const Hdf5Id type, row_type());
  const hsize_t count = rows.size();
  const Hdf5Id space(H5Screate_simple(1, &count, nullptr), &H5Sclose);
  const Hdf5Id properties(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
  if (H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER) < 0 ||
      H5Pset_obj_track_times(properties.get(), 0) < 0)
    return hdf5_error("dataset properties");
  const Hdf5Id table(H5Dcreate2(hdf5_file.get(), kChunkTablePath, type.get(), space.get(),
                                H5P_DEFAULT, properties.get(), H5P_DEFAULT),
                     &H5Dclose);
  if (!table || H5Dwrite(table.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()) < 0)
    return hdf5_error("writing the chunk table");
  const haddr_t offset = H5Dget_offset(table.get());
  if (offset == HADDR_UNDEF) return hdf5_error("the chunk table has no offset");
  digest.file.chunk_table_offset = static_cast<int64_t>(offset);
  digest.file.chunk_table_xxh3 = hex64(xxh3_64(std::as_bytes(std::span(rows))));
  digest.file.chunk_rows = static_cast<int64_t>(rows.size());
  return {};
}

Result<void> ShardFileWriter::Impl::close_file() {
  const Hdf5Lock lock;
  close_datasets();
  LOCKSTEP_RETURN_IF_ERROR(below(write_table()));
  const bool closed = hdf5_file.close();
  if (!closed) return below(hdf5_error("closing"));
  return driver_file.finish();
}

ShardFileWriter::ShardFileWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShardFileWriter::ShardFileWriter(ShardFileWriter&&) noexcept = default;
ShardFileWriter& ShardFileWriter::operator=(ShardFileWriter&&) noexcept = default;
ShardFileWriter::~ShardFileWriter() = default;

std::string hdf5_version() {
  const Hdf5Lock lock;
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return text(major, ".", minor, ".", release);
}

Result<void> try_hdf5(Codec codec) {
  constexpr hsize_t kElements = 1024, kFirst = 0;
  std::vector<float> values(kElements), found(kElements);
  std::iota(values.begin(), values.end(), 1.0F);
  EncodedChunk chunk;
  ChunkEncoder(codec).encode(std::as_bytes(std::span(values)), sizeof(float) * kElements,
                             codec != Codec::kNone, chunk);
  const Hdf5Lock lock;
  LOCKSTEP_RETURN_IF_ERROR(register_zstd_filter());
  DriverFile memory;  // is told of no chunk, so that all of it is image
  LOCKSTEP_TRY(const Hdf5Id file, create_file("trial", memory));
  LOCKSTEP_TRY(const Hdf5Id properties, creation_properties(codec, kElements));
  const Hdf5Id space(H5Screate_simple(1, &kElements, nullptr), &H5Sclose);
  Hdf5Id dataset(H5Dcreate2(file.get(), "trial", H5T_IEEE_F32LE, space.get(), H5P_DEFAULT,
                            properties.get(), H5P_DEFAULT),
                 &H5Dclose);
  if (!dataset) return hdf5_error("creating a dataset");
  if (H5Dwrite_chunk(dataset.get(), H5P_DEFAULT, chunk.filter_mask, &kFirst, chunk.stored_bytes,
                     chunk.stored.data()) < 0)
    return hdf5_error("writing a chunk");
  // HDF5 1.10 takes the filters of a chunk to be skipped until its dataset is opened again.
  dataset = Hdf5Id();
  dataset = Hdf5Id(H5Dopen2(file.get(), "trial", H5P_DEFAULT), &H5Dclose);
  if (!dataset) return hdf5_error("opening a dataset");
  if (H5Dread(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found.data()) < 0)
    return hdf5_error("reading a chunk");
  if (found != values) return Error{Code::kIo, "HDF5: a chunk is not what was written"};
  return {};
}

Result<ShardFileWriter> ShardFileWriter::open(FileSystem& file_system, ChunkPipeline& pipeline,
                                              const Options& options) {
  ShardFileWriter writer(std::make_unique<Impl>(file_system, pipeline, options));
  const Result<void> created = writer.impl_->create();
  if (!created.ok()) {
    writer.abandon();
    return created.error();
  }
  return writer;
}

Result<void> ShardFileWriter::append(const TensorPiece& piece, std::span<const std::byte> bytes) {
  impl_->check_new(piece);
  return impl_->encoder.append(piece, bytes);
}

Result<void> ShardFileWriter::flush() { return impl_->encoder.flush(); }

Result<ShardDigest> ShardFileWriter::seal() {
  Impl& i = *impl_;
  LOCKSTEP_CHECK(i.state == Impl::State::kOpen, i.path.string(), " is sealed twice");
  LOCKSTEP_RETURN_IF_ERROR(flush());
  i.state = Impl::State::kSealed;
  for (bool more = true; more;) {
    LOCKSTEP_TRY(more, i.take_one_of_each());
  }
  i.digest.sums = i.encoder.sums();
  LOCKSTEP_RETURN_IF_ERROR(i.close_file());
  File& file = *i.driver_file.file;
  LOCKSTEP_TRY(i.digest.file.size_bytes, file.size_bytes());
  const auto outside_bytes = [&](std::span<std::byte> bytes, int64_t offset) {
    i.driver_file.read_outside(bytes, offset);
    return Result<void>();
  };
  LOCKSTEP_TRY(const uint64_t outside,
               outside_hash(i.digest.file.size_bytes, i.rows, outside_bytes));
  i.digest.file.outside_xxh3 = hex64(outside);
  i.digest.stored_bytes = i.digest.file.size_bytes;
  const double start_s = system_clock().monotonic_s();
  LOCKSTEP_RETURN_IF_ERROR(file.sync());
  LOCKSTEP_RETURN_IF_ERROR(i.file_system.sync_directory(i.options.directory));
  i.digest.sync_s = system_clock().monotonic_s() - start_s;
  LOCKSTEP_CHECK(i.digest.file.chunk_rows == std::ssize(i.rows) && !i.driver_file.error,
                 i.path.string(), ": a table of ", i.digest.file.chunk_rows, " chunks, of ",
                 i.rows.size());
  return i.digest;
}

void ShardFileWriter::abandon() noexcept {
  impl_->state = Impl::State::kAbandoned;
  impl_->encoder.discard();
  impl_->close_handles();
  impl_->driver_file.file.reset();
  (void)impl_->file_system.remove(impl_->path).ok();
}

}  // namespace lockstep::checkpoint
