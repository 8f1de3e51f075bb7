# Reading headers is most of what a source costs to compile, and the sources of a folder read the same ones.
option(LOCKSTEP_UNITY "Compile the sources of a folder together" ON)

# One interface target that every target of ours links: language, warnings, sanitizers.
add_library(lockstep_options INTERFACE)
target_compile_features(lockstep_options INTERFACE cxx_std_20)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
target_include_directories(lockstep_options INTERFACE "${PROJECT_SOURCE_DIR}")
# -ffp-contract=off: arithmetic must give the same bits on every instruction set.
target_compile_options(lockstep_options INTERFACE
  -Wall -Wextra -ffp-contract=off
  # Of sources that are compiled together, one's names are no mistakes in the next, and none of them is a header.
  $<IF:$<BOOL:${LOCKSTEP_UNITY}>,-Wshadow=local;-Wno-subobject-linkage,-Wshadow>
  # gcc 12 sees these where they are not (std::string, std::optional at -O3).
  -Wno-error=deprecated-declarations -Wno-stringop-overflow -Wno-restrict -Wno-array-bounds -Wno-maybe-uninitialized)
if(LOCKSTEP_SANITIZE)
  # Undefined behaviour ends the program as well: a line in the output of a test that passes is read by nobody.
  target_compile_options(lockstep_options INTERFACE
    -fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(lockstep_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()
if(LOCKSTEP_SANITIZE MATCHES thread)
  # It knows no fences: Asio's handlers are handed over under locks besides.
  target_compile_definitions(lockstep_options INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

find_program(LOCKSTEP_CCACHE NAMES ccache sccache)
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the root are taken as relative: what one clone compiled serves another one.
  set(CMAKE_CXX_COMPILER_LAUNCHER env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" "${LOCKSTEP_CCACHE}")
endif()

# lockstep_cold(<target> …): nothing in these is waited for, so that -O1 is enough; it compiles a quarter faster.
function(lockstep_cold)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endforeach()
endfunction()

set(LOCKSTEP_UNITY_SOURCES 12)  # in one file at most: two cores have work, and memory stays below 2 GiB

# lockstep_unity(<target> [TOGETHER]): the sources of one folder (TOGETHER: all of them) are compiled as one file. It includes
# them by their path from the root, so it is the same in every clone, and a compiler cache knows it. Some stay alone:
# sources outside the root folder, with compile options of their own, or with SKIP_UNITY_BUILD_INCLUSION.
# Requires: the target has all its sources, or none yet.
function(lockstep_unity target)
  cmake_parse_arguments(ARG "TOGETHER" "" "" ${ARGN})
  if(NOT LOCKSTEP_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  if(NOT sources)
    return()  # they come from folders below
  endif()
  get_target_property(home ${target} SOURCE_DIR)
  set(alone "")
  set(folders "")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${home}" NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(IS_PREFIX PROJECT_SOURCE_DIR "${path}" ours)
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR "${path}" generated)
    set(special "")
    foreach(property COMPILE_OPTIONS COMPILE_DEFINITIONS SKIP_UNITY_BUILD_INCLUSION)
      get_property(value SOURCE "${path}" TARGET_DIRECTORY ${target} PROPERTY ${property})
      string(APPEND special "${value}")
    endforeach()
    if(source MATCHES "^\\$<" OR generated OR special OR NOT ours OR NOT path MATCHES "\\.cc$")
      list(APPEND alone "${source}")
      continue()
    endif()
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
    cmake_path(GET path PARENT_PATH folder)
    string(REPLACE "/" "_" folder "${folder}")
    if(ARG_TOGETHER)
      set(folder all)
    endif()
    list(APPEND folders ${folder})
    list(APPEND in_${folder} "${path}")
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set(joined "")
  foreach(folder IN LISTS folders)
    list(LENGTH in_${folder} count)
    math(EXPR files "(${count} + ${LOCKSTEP_UNITY_SOURCES} - 1) / ${LOCKSTEP_UNITY_SOURCES}")
    math(EXPR each "(${count} + ${files} - 1) / ${files}")
    math(EXPR last "${count} - 1")
    foreach(first RANGE 0 ${last} ${each})
      list(SUBLIST in_${folder} ${first} ${each} part)
      list(TRANSFORM part REPLACE "(.+)" "#include \"\\1\"\n")
      string(JOIN "" part ${part})
      set(file "${PROJECT_BINARY_DIR}/unity/${target}_${folder}_${first}.cc")
      file(CONFIGURE OUTPUT "${file}" CONTENT "${part}" @ONLY)
      list(APPEND joined "${file}")
    endforeach()
  endforeach()
  set_property(TARGET ${target} PROPERTY SOURCES ${alone} ${joined})
endfunction()

# lockstep_library(<name> SOURCES a.cc … LINK x …): a static library target lockstep_<name>, alias lockstep::<name>.
function(lockstep_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(lockstep_${name} STATIC ${ARG_SOURCES})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  target_link_libraries(lockstep_${name} PUBLIC lockstep_options ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
  lockstep_unity(lockstep_${name})
endfunction()
