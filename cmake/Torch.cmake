# LibTorch from the PyPI wheel, as imported targets. Torch's own CMake config wants a CUDA toolkit even
# for CPU-only programs, so the three libraries are named here.
#   LOCKSTEP_TORCH (variable or environment): the folder that holds torch/ and nvidia/ (tools/setup makes it)
#   Torch_DIR: .../torch/share/cmake/Torch of an existing installation
if(NOT LOCKSTEP_TORCH)
  if(DEFINED ENV{LOCKSTEP_TORCH})
    set(LOCKSTEP_TORCH "$ENV{LOCKSTEP_TORCH}")
  elseif(Torch_DIR OR DEFINED ENV{Torch_DIR})
    if(NOT Torch_DIR)
      set(Torch_DIR "$ENV{Torch_DIR}")
    endif()
    get_filename_component(LOCKSTEP_TORCH "${Torch_DIR}/../../../.." ABSOLUTE)
  else()
    set(LOCKSTEP_TORCH "${PROJECT_SOURCE_DIR}/.deps/torch-2.15.0")
  endif()
endif()
set(_torch "${LOCKSTEP_TORCH}/torch")
if(NOT EXISTS "${_torch}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "no LibTorch at ${_torch}; run tools/setup, or set LOCKSTEP_TORCH to the folder that holds torch/")
endif()
file(STRINGS "${_torch}/include/torch/headeronly/version.h" LOCKSTEP_TORCH_VERSION REGEX "^ +\"[^\"]+\"$")
string(REGEX MATCH "[^ \"]+" LOCKSTEP_TORCH_VERSION "${LOCKSTEP_TORCH_VERSION}")
set(_cuda_lib "${LOCKSTEP_TORCH}/nvidia/cu13/lib")
find_path(LOCKSTEP_GLOO_INCLUDE gloo/algorithm.h DOC "The folder that holds gloo/, Gloo's headers")
if(NOT LOCKSTEP_GLOO_INCLUDE)
  message(FATAL_ERROR "Gloo's headers are missing: Debian's libgloo-dev has them; elsewhere name the folder that "
    "holds gloo/ by -DLOCKSTEP_GLOO_INCLUDE=…")
endif()

function(_lockstep_torch_library name file)
  add_library(${name} SHARED IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION "${_torch}/lib/${file}" IMPORTED_SONAME "${file}")
endfunction()
_lockstep_torch_library(torch_cpu_so libtorch_cpu.so)
_lockstep_torch_library(c10_so libc10.so)
_lockstep_torch_library(gomp_so libgomp.so.1)  # the one that libtorch_cpu uses: one pool of threads

add_library(lockstep_torch INTERFACE)
add_library(lockstep::torch ALIAS lockstep_torch)
target_include_directories(lockstep_torch SYSTEM INTERFACE
  "${_torch}/include" "${_torch}/include/torch/csrc/api/include" "${LOCKSTEP_GLOO_INCLUDE}")
target_compile_definitions(lockstep_torch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
# DT_RPATH, not RUNPATH: libtorch_cpu.so finds libcudart and libcupti through the program's path. lib/ beside bin/
# comes first, for programs that moved: those of `lockstep stage` must not go back to where they were built.
# (Paths that are link options would come before CMake's own.)
set(CMAKE_BUILD_RPATH "$ORIGIN/../lib")
add_link_options(-Wl,--disable-new-dtags)
target_link_libraries(lockstep_torch INTERFACE torch_cpu_so c10_so gomp_so Threads::Threads
  "-Wl,-rpath,${_torch}/lib,-rpath,${_cuda_lib},-rpath-link,${_cuda_lib}")

# core/kernels/matmul.cc calls one function that LibTorch exports and does not publish. A LibTorch without it, or
# with another form of it, gets the published products, which are slower in fp32 on some CPUs.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES torch_cpu_so c10_so)
set(CMAKE_REQUIRED_LINK_OPTIONS -Wl,--allow-shlib-undefined)
set(CMAKE_REQUIRED_QUIET ON)
set(_onednn_matmul "LOCKSTEP_ONEDNN_MATMUL_${LOCKSTEP_TORCH_VERSION}")
check_cxx_source_compiles("
namespace at {
class Tensor;
namespace native { void mkldnn_matmul(const Tensor&, const Tensor&, const Tensor&, float, float); }
}
auto* product = &at::native::mkldnn_matmul;
int main() { return product == nullptr; }" ${_onednn_matmul})
unset(CMAKE_REQUIRED_LIBRARIES)
unset(CMAKE_REQUIRED_LINK_OPTIONS)
unset(CMAKE_REQUIRED_QUIET)
set(LOCKSTEP_ONEDNN_MATMUL "${${_onednn_matmul}}")
if(NOT LOCKSTEP_ONEDNN_MATMUL)
  message(WARNING "LibTorch ${LOCKSTEP_TORCH_VERSION} has no at::native::mkldnn_matmul: fp32 products are at::mm's")
endif()
if(LOCKSTEP_CUDA)
  include(Cuda)
endif()
