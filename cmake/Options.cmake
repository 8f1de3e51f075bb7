# One interface target that every target of ours links: language, warnings, sanitizers.
add_library(lockstep_options INTERFACE)
target_compile_features(lockstep_options INTERFACE cxx_std_20)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
target_include_directories(lockstep_options INTERFACE "${PROJECT_SOURCE_DIR}")
# -ffp-contract=off: arithmetic must give the same bits on every instruction set.
target_compile_options(lockstep_options INTERFACE
  -Wall -Wextra -Wshadow -ffp-contract=off
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
  set(CMAKE_CXX_COMPILER_LAUNCHER "${LOCKSTEP_CCACHE}")
endif()

# lockstep_library(<name> SOURCES a.cc … LINK x …): a static library target lockstep_<name>, alias lockstep::<name>.
function(lockstep_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(lockstep_${name} STATIC ${ARG_SOURCES})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  target_link_libraries(lockstep_${name} PUBLIC lockstep_options ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
endfunction()
