# Toolchain of the preset aarch64: programs for 64-bit Arm, built on x86-64 with what
# `tools/setup --aarch64` fetches. tools/check_aarch64 builds it and runs its tests.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH _deps)
cmake_path(APPEND _deps .deps)
set(CMAKE_SYSROOT "${_deps}/aarch64")
if(NOT EXISTS "${CMAKE_SYSROOT}/lib/ld-linux-aarch64.so.1")
  message(FATAL_ERROR "no libraries for Arm in ${CMAKE_SYSROOT}: run tools/setup --aarch64")
endif()
set(CMAKE_CROSSCOMPILING_EMULATOR "${CMAKE_CURRENT_LIST_DIR}/run_aarch64")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR}
  "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")
# LOCKSTEP_TORCH of the environment is this machine's.
set(LOCKSTEP_TORCH "${_deps}/torch-2.15.0-aarch64" CACHE PATH "LibTorch for Arm")
