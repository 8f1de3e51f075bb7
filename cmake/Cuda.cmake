# CUDA's compiler, and libtorch_cuda and NCCL added to lockstep::torch. The libraries that libtorch_cuda
# needs lie beside torch/ in nvidia/ (tools/setup --cuda fetches them; a Python environment with torch has
# them too); what is not there comes from the CUDA toolkit.
# Requires: cmake/Torch.cmake has set _torch.
find_program(LOCKSTEP_NVCC NAMES nvcc HINTS "$ENV{CUDA_HOME}/bin"
  PATHS /usr/local/cuda/bin "${LOCKSTEP_TORCH}/nvidia/cu13/bin" REQUIRED)
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER "${LOCKSTEP_NVCC}")
endif()
# Machine code for A100 and H100 or GH200; later devices compile the 9.0 form when the program starts.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
if(LOCKSTEP_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
find_package(CUDAToolkit 13.0 REQUIRED)
if(NOT EXISTS "${_torch}/lib/libtorch_cuda.so")
  message(FATAL_ERROR "the LibTorch at ${_torch} has no CUDA; run tools/setup --cuda, or set LOCKSTEP_TORCH")
endif()

_lockstep_torch_library(torch_cuda_so libtorch_cuda.so)
_lockstep_torch_library(c10_cuda_so libc10_cuda.so)
file(GLOB _cuda_libs LIST_DIRECTORIES true "${LOCKSTEP_TORCH}/nvidia/*/lib")
list(APPEND _cuda_libs "${CUDAToolkit_LIBRARY_DIR}")
find_path(LOCKSTEP_NCCL_INCLUDE nccl.h REQUIRED
  HINTS "${LOCKSTEP_TORCH}/nvidia/nccl/include" ${CUDAToolkit_INCLUDE_DIRS})
# The one that libtorch_cuda loads: wheels have no libnccl.so.
find_library(LOCKSTEP_NCCL NAMES libnccl.so.2 nccl REQUIRED HINTS ${_cuda_libs})
# cuDNN's graphs are described by NVIDIA's headers of its frontend, which are a package of their own.
find_path(LOCKSTEP_CUDNN_INCLUDE cudnn.h REQUIRED
  HINTS "${LOCKSTEP_TORCH}/nvidia/cudnn/include" ${CUDAToolkit_INCLUDE_DIRS})
find_library(LOCKSTEP_CUDNN NAMES libcudnn.so.9 REQUIRED HINTS ${_cuda_libs})
find_path(LOCKSTEP_CUDNN_FRONTEND cudnn_frontend.h HINTS "${LOCKSTEP_TORCH}/include")
if(NOT LOCKSTEP_CUDNN_FRONTEND)
  message(FATAL_ERROR "there is no cudnn_frontend.h in ${LOCKSTEP_TORCH}/include: tools/setup --cuda fetches it; "
    "into a LibTorch of your own: pip install --no-deps nvidia-cudnn-frontend==1.15.0")
endif()
# Headers alone: a profiler brings the library.
find_path(LOCKSTEP_NVTX_INCLUDE nvtx3/nvToolsExt.h REQUIRED
  HINTS "${LOCKSTEP_TORCH}/nvidia/cu13/include" ${CUDAToolkit_INCLUDE_DIRS})
# bench/gpu/device_trace.cc alone uses it.
find_path(LOCKSTEP_CUPTI_INCLUDE cupti.h REQUIRED HINTS "${LOCKSTEP_TORCH}/nvidia/cu13/include"
  "${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include")
find_library(LOCKSTEP_CUPTI NAMES libcupti.so.13 REQUIRED HINTS ${_cuda_libs})

target_include_directories(lockstep_torch SYSTEM INTERFACE "${LOCKSTEP_NCCL_INCLUDE}" "${LOCKSTEP_CUDNN_INCLUDE}"
  "${LOCKSTEP_CUDNN_FRONTEND}" "${LOCKSTEP_NVTX_INCLUDE}")
target_compile_definitions(lockstep_torch INTERFACE LOCKSTEP_CUDA USE_C10D_NCCL USE_CUDA)
# Named by nothing of ours, libtorch_cuda registers its kernels when it is loaded.
target_link_libraries(lockstep_torch INTERFACE torch_cuda_so c10_cuda_so "${LOCKSTEP_NCCL}" "${LOCKSTEP_CUDNN}"
  CUDA::cudart)
target_link_options(lockstep_torch INTERFACE -Wl,--no-as-needed)
foreach(_lib IN LISTS _cuda_libs)
  target_link_libraries(lockstep_torch INTERFACE "-Wl,-rpath,${_lib},-rpath-link,${_lib}")
endforeach()
# Symbols of libraries that are not there at link time (cuFile, NVSHMEM) are looked for at run time.
target_link_options(lockstep_torch INTERFACE "-Wl,--allow-shlib-undefined")
