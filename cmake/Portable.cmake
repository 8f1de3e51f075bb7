# Whether programs can be linked that run on systems older than this one, as a wheel has them (packaging/wheel): with Debian
# 11's glibc, libstdc++ and sentencepiece, which `tools/setup --test` fetches on Debian 12 for x86-64.
#   LOCKSTEP_PORTABLE   whether they are here
#   LOCKSTEP_BULLSEYE   their root folder
set(LOCKSTEP_BULLSEYE "${PROJECT_SOURCE_DIR}/.deps/bullseye")
set(LOCKSTEP_PORTABLE OFF)
if(EXISTS "${LOCKSTEP_BULLSEYE}.stamp" AND LOCKSTEP_HDF5_ARCHIVE_LINKS AND NOT LOCKSTEP_SANITIZE
   AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13
   AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(LOCKSTEP_PORTABLE ON)
endif()

# lockstep_if_portable(<variable> <library> <other library>): a program with the property PORTABLE links the other one.
function(lockstep_if_portable variable library other)
  if(LOCKSTEP_PORTABLE)
    set(library "$<IF:$<BOOL:$<TARGET_PROPERTY:PORTABLE>>,${other},${library}>")
  endif()
  set(${variable} "${library}" PARENT_SCOPE)
endfunction()

# Those of Debian 12's libraries that need a newer glibc than 2.31 are linked in.
if(LOCKSTEP_PORTABLE)
  foreach(name zstd sodium)
    find_library(LOCKSTEP_${name}_ARCHIVE lib${name}.a REQUIRED)
    get_target_property(shared PkgConfig::${name} INTERFACE_LINK_LIBRARIES)
    lockstep_if_portable(either "${shared}" "${LOCKSTEP_${name}_ARCHIVE}")
    set_target_properties(PkgConfig::${name} PROPERTIES INTERFACE_LINK_LIBRARIES "${either}")
  endforeach()
endif()
