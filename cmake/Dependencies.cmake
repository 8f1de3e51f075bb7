# Debian's libraries, each as one imported target. tools/setup installs them.
include(CheckCXXSourceCompiles)
find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2 REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(ZLIB REQUIRED)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(hwy REQUIRED libhwy)  # its headers; checkpoint/codec/vector_targets.cc says why
add_library(lockstep_highway INTERFACE)
target_include_directories(lockstep_highway SYSTEM INTERFACE ${hwy_INCLUDE_DIRS})
target_compile_definitions(lockstep_highway INTERFACE HWY_IS_DEBUG_BUILD=0)  # whose checks need the library
pkg_check_modules(sodium REQUIRED IMPORTED_TARGET libsodium)
find_package(Boost 1.74 CONFIG REQUIRED)  # Asio, Beast: headers only
find_path(LOCKSTEP_TOMLPP_INCLUDE toml++/toml.h REQUIRED)
# The machine's own for whatever target: it runs in a browser.
find_file(LOCKSTEP_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH
  DOC "Chart.js 3, which goes into the program")
set(chart_js "")
if(LOCKSTEP_CHART_JS)
  file(STRINGS "${LOCKSTEP_CHART_JS}" chart_js REGEX "Chart\\.js v3\\." LIMIT_COUNT 1)
endif()
if(NOT chart_js)
  message(FATAL_ERROR "Chart.js 3 is missing: Debian's libjs-chart.js has it; elsewhere give it by "
    "-DLOCKSTEP_CHART_JS=…/chart.min.js")
endif()
pkg_search_module(hdf5 REQUIRED IMPORTED_TARGET hdf5-serial hdf5)  # Debian's name, everybody's
if(NOT hdf5_VERSION MATCHES "^1\\.(10|14)\\.")  # checkpoint/shard_file/file_driver.cc knows these two
  message(FATAL_ERROR "HDF5 ${hdf5_VERSION} is not supported: Lockstep is tested with 1.10 and 1.14")
endif()
# A program with the property QUICK_START gets the archive, where that is complete without more than
# szip: the shared library brings curl, Kerberos and 30 more, which a wheel would have to carry, and
# loading them is most of what `lockstep --help` would do. Tests put other functions before those of
# the shared one.
find_library(LOCKSTEP_HDF5_ARCHIVE libhdf5.a HINTS ${hdf5_LIBRARY_DIRS})
find_library(LOCKSTEP_SZIP sz)
if(LOCKSTEP_HDF5_ARCHIVE AND LOCKSTEP_SZIP)
  set(CMAKE_REQUIRED_INCLUDES ${hdf5_INCLUDE_DIRS})
  set(CMAKE_REQUIRED_LIBRARIES ${LOCKSTEP_HDF5_ARCHIVE} ${LOCKSTEP_SZIP} ZLIB::ZLIB m ${CMAKE_DL_LIBS})
  check_cxx_source_compiles("
    #include <hdf5.h>
    int main() { return H5Fcreate(\"f\", H5F_ACC_TRUNC, H5P_DEFAULT, H5Pcreate(H5P_FILE_ACCESS)) < 0; }"
    LOCKSTEP_HDF5_ARCHIVE_LINKS)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LIBRARIES)
endif()
add_library(lockstep_hdf5 INTERFACE)
target_include_directories(lockstep_hdf5 SYSTEM INTERFACE ${hdf5_INCLUDE_DIRS})
set(quick $<AND:$<BOOL:${LOCKSTEP_HDF5_ARCHIVE_LINKS}>,$<BOOL:$<TARGET_PROPERTY:QUICK_START>>>)
target_link_libraries(lockstep_hdf5 INTERFACE
  $<IF:${quick},${LOCKSTEP_HDF5_ARCHIVE},PkgConfig::hdf5> $<${quick}:${LOCKSTEP_SZIP}>
  $<${quick}:ZLIB::ZLIB> $<${quick}:${CMAKE_DL_LIBS}>)
if(LOCKSTEP_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
