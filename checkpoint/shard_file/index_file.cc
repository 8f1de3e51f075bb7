#include "checkpoint/shard_file/index_file.h"

#include <limits>

#include "base/text.h"
#include "checkpoint/record/flat_boxes.h"
#include "checkpoint/shard_file/file_driver.h"
#include "checkpoint/shard_file/hdf5_call.h"

namespace lockstep::checkpoint {
namespace {

struct Source {  // a piece and the file that holds it
  const ManifestFile* file;
  const TensorPiece* piece;
};
using Sources = std::map<std::string, std::vector<Source>>;  // by TensorPiece::tensor_key()

std::vector<hsize_t> unsigned_of(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

// One mapping for each box of the piece: the box in the tensor, the run in the rank file.
Result<void> map_piece(hid_t properties, hid_t space, const Source& source) {
  const TensorPiece& piece = *source.piece;
  const hsize_t length = static_cast<hsize_t>(piece.length);
  const Hdf5Id run(H5Screate_simple(1, &length, nullptr), &H5Sclose);
  for (const Box& box : flat_boxes(piece.global_shape, piece.flat_start, piece.length)) {
    const auto start = unsigned_of(box.start), count = unsigned_of(box.count);
    const auto run_start = static_cast<hsize_t>(box.flat_start - piece.flat_start);
    const auto run_count = static_cast<hsize_t>(box.elements);
    if (H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) <
            0 ||
        H5Sselect_hyperslab(run.get(), H5S_SELECT_SET, &run_start, nullptr, &run_count, nullptr) <
            0 ||
        H5Pset_virtual(properties, space, source.file->name.c_str(), piece.dataset_path().c_str(),
                       run.get()) < 0)
      return hdf5_error(text("mapping ", piece.dataset_path()));
  }
  return {};
}

Result<void> write_tensor(hid_t file, hid_t link_properties, const std::string& key,
                          const std::vector<Source>& sources) {
  const std::vector<int64_t>& shape = sources.front().piece->global_shape;
  const auto dims = unsigned_of(shape.empty() ? std::vector<int64_t>{1} : shape);
  const Hdf5Id space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                     &H5Sclose);
  const Hdf5Id properties(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (!space || H5Pset_fill_value(properties.get(), H5T_NATIVE_FLOAT, &nan) < 0 ||
      H5Pset_obj_track_times(properties.get(), 0) < 0)
    return hdf5_error(text("properties of ", key));
  for (const Source& source : sources)
    LOCKSTEP_RETURN_IF_ERROR(map_piece(properties.get(), space.get(), source));
  H5Sselect_all(space.get());
  LOCKSTEP_TRY(const Hdf5Id type, element_type(sources.front().piece->dtype));
  const Hdf5Id dataset(H5Dcreate2(file, ("/" + key).c_str(), type.get(), space.get(),
                                  link_properties, properties.get(), H5P_DEFAULT),
                       &H5Dclose);
  if (!dataset) return hdf5_error(text("creating ", key));
  return set_attribute(dataset.get(), "global_shape", shape);
}

// Requires: Hdf5Lock held.
Result<void> write_hdf5(const std::string& name, DriverFile& driver_file,
                        const Manifest& manifest) {
  const Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose);
  if (!access || H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110) < 0)
    return hdf5_error("file access properties");
  LOCKSTEP_RETURN_IF_ERROR(use_driver(access.get(), driver_file));
  LOCKSTEP_TRY(const Hdf5Id creation, untimed_file_properties());
  Hdf5Id file(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), &H5Fclose);
  const Hdf5Id link_properties(H5Pcreate(H5P_LINK_CREATE), &H5Pclose);
  if (!file || H5Pset_create_intermediate_group(link_properties.get(), 1) < 0)
    return hdf5_error(text("creating ", name));
  LOCKSTEP_RETURN_IF_ERROR(set_attribute(file.get(), "format", std::string("lockstep-index")));
  LOCKSTEP_RETURN_IF_ERROR(set_attribute(file.get(), "step", manifest.step));
  Sources sources;
  for (const ManifestFile& each : manifest.files)
    for (const TensorPiece& piece : each.pieces)
      sources[piece.tensor_key()].push_back({&each, &piece});
  std::string group;  // a tensor's key begins with its kind, and the keys are sorted
  for (const auto& [key, of_tensor] : sources) {
    if (const std::string kind = key.substr(0, key.find('/')); kind != group) {
      group = kind;
      LOCKSTEP_RETURN_IF_ERROR(create_untimed_group(file.get(), "/" + group));
    }
    LOCKSTEP_RETURN_IF_ERROR(write_tensor(file.get(), link_properties.get(), key, of_tensor));
    if (driver_file.error) return *driver_file.error;
  }
  if (!file.close()) return hdf5_error(text("closing ", name));
  return {};
}

}  // namespace

Result<std::string> index_contents(const Manifest& manifest) {
  DriverFile driver_file;  // without a file behind it: an index has no chunks, so all is its image
  {
    const Hdf5Lock lock;
    LOCKSTEP_RETURN_IF_ERROR(write_hdf5(kIndexName, driver_file, manifest));
  }
  std::string contents(static_cast<size_t>(driver_file.end_of_allocation), '\0');
  driver_file.read_outside(std::as_writable_bytes(std::span(contents)), 0);
  return contents;
}

Result<void> write_index(FileSystem& file_system, const std::filesystem::path& directory,
                         const Manifest& manifest) {
  LOCKSTEP_TRY(const std::string contents, index_contents(manifest));
  return publish_file(file_system, directory / kIndexName, contents);
}

}  // namespace lockstep::checkpoint
