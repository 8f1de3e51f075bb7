// An HDF5 that refuses: linked into a test, or preloaded into a worker. REFUSE_HDF5=driver: it
// registers no file driver; REFUSE_HDF5=filter: it says that it registered a filter and did not.
#include <dlfcn.h>
#include <hdf5.h>

#include <cstdlib>
#include <string_view>

namespace {

bool refuses(std::string_view what) {
  const char* const chosen = std::getenv("REFUSE_HDF5");
  return chosen != nullptr && what == chosen;
}

}  // namespace

extern "C" hid_t H5FDregister(const H5FD_class_t* driver) {
  if (refuses("driver")) return -1;
  return reinterpret_cast<decltype(&H5FDregister)>(dlsym(RTLD_NEXT, "H5FDregister"))(driver);
}

extern "C" herr_t H5Zregister(const void* filter) {
  if (refuses("filter")) return 0;
  return reinterpret_cast<decltype(&H5Zregister)>(dlsym(RTLD_NEXT, "H5Zregister"))(filter);
}
