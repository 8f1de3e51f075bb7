#include "checkpoint/shard_file/hdf5_call.h"

#include "base/check.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

herr_t keep_innermost(unsigned depth, const H5E_error2_t* error, void* message) {
  if (depth == 0 && error->desc != nullptr) *static_cast<std::string*>(message) = error->desc;
  return 0;
}

Result<void> write_attribute(hid_t object, const char* name, hid_t type, hid_t space,
                             const void* value) {
  const Hdf5Id attribute(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT),
                         &H5Aclose);
  if (!attribute) return hdf5_error(text("attribute ", name));
  // An array of no values has nothing to write.
  if (H5Sget_simple_extent_npoints(space) > 0 && H5Awrite(attribute.get(), type, value) < 0)
    return hdf5_error(text("attribute ", name));
  return {};
}

}  // namespace

std::mutex Hdf5Lock::mutex_;

Hdf5Lock::Hdf5Lock() : lock_(mutex_) {
  thread_local bool quiet = false;
  if (!quiet) quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
}

Error hdf5_error(const std::string& what) {
  std::string message = "failed";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, &keep_innermost, &message);
  return {Code::kIo, text("HDF5: ", what, ": ", message)};
}

Result<Hdf5Id> untimed_file_properties() {
  Hdf5Id properties(H5Pcreate(H5P_FILE_CREATE), &H5Pclose);
  if (H5Pset_obj_track_times(properties.get(), 0) < 0) return hdf5_error("file properties");
  return properties;
}

Result<void> create_untimed_group(hid_t file, const std::string& path) {
  const Hdf5Id properties(H5Pcreate(H5P_GROUP_CREATE), &H5Pclose);
  if (H5Pset_obj_track_times(properties.get(), 0) < 0) return hdf5_error("group properties");
  const Hdf5Id group(H5Gcreate2(file, path.c_str(), H5P_DEFAULT, properties.get(), H5P_DEFAULT),
                     &H5Gclose);
  if (!group) return hdf5_error("creating " + path);
  return {};
}

Result<Hdf5Id> element_type(Dtype dtype) {
  LOCKSTEP_CHECK(dtype != Dtype::kF16, dtype_word(dtype));
  Hdf5Id type(H5Tcopy(H5T_IEEE_F32LE), &H5Tclose);
  if (!type) return hdf5_error("the type of elements");
  if (dtype == Dtype::kF32) return type;
  const hid_t id = type.get();
  if (H5Tset_fields(id, 15, 7, 8, 0, 7) < 0 || H5Tset_size(id, 2) < 0 || H5Tset_ebias(id, 127) < 0)
    return hdf5_error("the type of bf16");
  return type;
}

Result<void> set_attribute(hid_t object, const char* name, const std::string& value) {
  const Hdf5Id type(H5Tcopy(H5T_C_S1), &H5Tclose);
  const Hdf5Id space(H5Screate(H5S_SCALAR), &H5Sclose);
  const size_t size = value.empty() ? 1 : value.size();
  if (!type || !space || H5Tset_size(type.get(), size) < 0 ||
      H5Tset_strpad(type.get(), H5T_STR_NULLPAD) < 0 || H5Tset_cset(type.get(), H5T_CSET_UTF8) < 0)
    return hdf5_error("string type");
  return write_attribute(object, name, type.get(), space.get(), value.c_str());
}

Result<void> set_attribute(hid_t object, const char* name, int64_t value) {
  const Hdf5Id space(H5Screate(H5S_SCALAR), &H5Sclose);
  return write_attribute(object, name, H5T_STD_I64LE, space.get(), &value);
}

Result<void> set_attribute(hid_t object, const char* name, const std::vector<int64_t>& values) {
  const hsize_t count = values.size();
  const Hdf5Id space(H5Screate_simple(1, &count, nullptr), &H5Sclose);
  return write_attribute(object, name, H5T_STD_I64LE, space.get(), values.data());
}

}  // namespace lockstep::checkpoint
