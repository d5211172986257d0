# Libraries and programs: the words that the CMakeLists.txt files are written in. Words of modules
# are in modules.cmake, those of tests in tests.cmake.
#
#   aisc_floor(nn LIBS aisc_ops aisc_comm)             a room: one static library, aisc_nn
#   aisc_library(aisc_x SOURCES ... LIBS ...)          a library of chosen files
#   aisc_program(x SOURCES ... LIBS ...)               a program
#   aisc_bench(bench_x SOURCES ... LIBS ...)           a program of Google Benchmark
#   aisc_embed(aisc_app report/page.html ...)          files that a library carries in itself
#
# Further words of aisc_floor and aisc_library:
#   PACKAGES cuda mpi ...   what only its own .cpp files see; optional ones where they are in use
#   FLAGS options.cpp ...   files that read a command line with CLI11
#   LOOPS                   has long loops over numbers: sanitizers need it optimized
#   PRECOMPILE              many files: sanitizers compile their headers once (AISC_PRECOMPILE)
#   LIGHT                   what takes its time is in other libraries: compiled quickly
#   READERS                 reads files: the fuzzer watches it
#   TEST                    of tests: compiled quickly, with their headers
# Further words of aisc_program:
#   MEASURES                measures or shows: not built under sanitizers
#   LIGHT                   as of libraries
#   TEST                    a test: compiled quickly, lies in tests/ of the build folder

# Archives need each other in circles (modules.cmake): the linker goes through all of them until
# nothing is missing.
get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
foreach(language IN LISTS languages)
  string(REPLACE "<LINK_LIBRARIES>" "-Wl,--start-group <LINK_LIBRARIES> -Wl,--end-group"
    CMAKE_${language}_LINK_EXECUTABLE "${CMAKE_${language}_LINK_EXECUTABLE}")
endforeach()

# Sets `out` to the sources of `folder`. What belongs to an optional package X (cuda, mpi, nccl,
# onednn) is chosen by name: the folder X/ when the package is in use, else the file no_X.cpp.
function(aisc_sources out folder)
  file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cpp")
  foreach(package IN ITEMS cuda mpi nccl onednn)
    file(GLOB optional CONFIGURE_DEPENDS "${folder}/${package}/*.cpp" "${folder}/${package}/*.cu")
    string(TOUPPER "${package}" name)
    if(optional AND AISC_HAS_${name})
      list(APPEND sources ${optional})
      list(REMOVE_ITEM sources "${folder}/no_${package}.cpp")
    endif()
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# The libraries the .cpp files of the project may use; headers do not mention them.
set(AISC_PRIVATE_LIBS fmt::fmt nlohmann_json::nlohmann_json)

# Kernels (.cu) are compiled by nvcc, or for an emulated GPU as the C++ that they also are.
function(aisc_compile_kernels)
  list(FILTER ARGN INCLUDE REGEX "\\.cu$")
  if(AISC_CUDA STREQUAL "EMULATED")
    set(options -x c++)
    if(AISC_SANITIZE)
      list(APPEND options -O0)
    endif()
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "${options}")
  endif()
endfunction()

# Where a target lies in the build folder: under its folder's name, also when a module is built
# alone.
function(aisc_place target)
  file(RELATIVE_PATH folder "${AISC_ROOT}" "${CMAKE_CURRENT_SOURCE_DIR}")
  set_target_properties(${target} PROPERTIES
    ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/${folder}"
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/${folder}")
endfunction()

# Links to a library, if it has files of its own, packages that only these see.
function(aisc_use_packages target)
  get_target_property(type ${target} TYPE)
  foreach(package IN LISTS ARGN)
    string(TOUPPER "${package}" name)
    if(NOT type STREQUAL "INTERFACE_LIBRARY" AND (NOT DEFINED AISC_HAS_${name} OR AISC_HAS_${name}))
      target_link_libraries(${target} PRIVATE aisc_${package})
    endif()
  endforeach()
endfunction()

# The heavy headers of rooms, compiled once. Not where warnings are errors: with optimization GCC then
# warns of what is in the standard library's headers. (Students' files compile as they are.)
function(aisc_precompile_library target)
  if(NOT TARGET aisc_headers)
    file(WRITE "${CMAKE_BINARY_DIR}/aisc_headers.cpp" "")
    add_library(aisc_headers OBJECT "${CMAKE_BINARY_DIR}/aisc_headers.cpp")
    target_link_libraries(aisc_headers PRIVATE aisc_settings ${AISC_PRIVATE_LIBS})
    target_precompile_headers(aisc_headers PRIVATE <fmt/format.h> <nlohmann/json.hpp> <algorithm>
      <atomic> <chrono> <filesystem> <functional> <map> <memory> <mutex> <optional> <span> <thread>)
  endif()
  target_precompile_headers(${target} REUSE_FROM aisc_headers)
endfunction()

# Without sources yet, it is only a name for LIBS. CLI11 takes a compiler half a minute to optimize:
# FLAGS are not optimized, nor under sanitizers is what has no LOOPS: half the time, hardly slower.
function(aisc_library target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LOOPS;PRECOMPILE;READERS;LIGHT;TEST" ""
    "SOURCES;LIBS;FLAGS;PACKAGES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${target}: unknown words: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_SOURCES)
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE aisc_settings ${arg_LIBS})
    return()
  endif()
  aisc_compile_kernels(${arg_SOURCES})
  add_library(${target} STATIC ${arg_SOURCES})
  aisc_place(${target})
  target_link_libraries(${target} PUBLIC aisc_settings ${arg_LIBS} PRIVATE ${AISC_PRIVATE_LIBS})
  aisc_use_packages(${target} ${arg_PACKAGES})
  if(arg_FLAGS)
    set_source_files_properties(${arg_FLAGS} PROPERTIES COMPILE_OPTIONS -O0
      SKIP_PRECOMPILE_HEADERS ON)
    target_link_libraries(${target} PRIVATE CLI11::CLI11)
  endif()
  # Loops are optimized with what is beside them: where they are, their files stay as they are.
  if(AISC_UNITY AND (AISC_SANITIZE OR NOT arg_LOOPS))
    set_property(TARGET ${target} PROPERTY UNITY_BUILD ON)
  endif()
  if(arg_TEST)
    target_compile_options(${target} PRIVATE -O0)
    aisc_precompile(${target})
  elseif(arg_LIGHT AND CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -O1)
  endif()
  if(AISC_SANITIZE)
    set_property(TARGET ${target} PROPERTY EXCLUDE_FROM_ALL ON)  # unless a test needs it
    if(NOT arg_LOOPS)
      target_compile_options(${target} PRIVATE -O0)
    endif()
    if(AISC_PRECOMPILE AND arg_PRECOMPILE)
      target_precompile_headers(${target} PRIVATE <fmt/format.h> <nlohmann/json.hpp> <algorithm>
        <functional> <map> <memory> <thread>)
    endif()
  endif()
  if(AISC_FUZZ AND arg_READERS)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# A room in common/, or in the root. FOLDERS are subfolders in the same library (ops/cpu).
function(aisc_floor name)
  set(flags LOOPS PRECOMPILE READERS LIGHT)
  cmake_parse_arguments(PARSE_ARGV 1 arg "${flags}" "" "FOLDERS;LIBS;FLAGS;PACKAGES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${name}: unknown words: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(words)
  foreach(word IN LISTS flags)
    if(arg_${word})
      list(APPEND words ${word})
    endif()
  endforeach()
  set(folder "${AISC_ROOT}/common/${name}")
  if(NOT EXISTS "${folder}")
    set(folder "${AISC_ROOT}/${name}")
  endif()
  aisc_sources(sources "${folder}")
  foreach(subfolder IN LISTS arg_FOLDERS)
    aisc_sources(more "${folder}/${subfolder}")
    list(APPEND sources ${more})
  endforeach()
  aisc_library(aisc_${name} ${words} SOURCES ${sources} LIBS ${arg_LIBS}
    FLAGS ${arg_FLAGS} PACKAGES ${arg_PACKAGES})
  if(sources AND AISC_PRECOMPILE AND NOT AISC_SANITIZE AND NOT AISC_WERROR AND NOT AISC_CUDA)
    aisc_precompile_library(aisc_${name})
  endif()
endfunction()

# The heavy headers of tests, compiled once for all test programs without optimization: half the time
# that compiling them takes. A header that a file forgets to include is hidden by this: CI compiles
# tests that changed without.
function(aisc_precompile target)
  if(NOT AISC_PRECOMPILE)
    return()
  endif()
  if(NOT TARGET aisc_test_headers)
    file(WRITE "${CMAKE_BINARY_DIR}/aisc_test_headers.cpp" "")
    add_library(aisc_test_headers OBJECT "${CMAKE_BINARY_DIR}/aisc_test_headers.cpp")
    target_link_libraries(aisc_test_headers PRIVATE aisc_settings GTest::gtest GTest::gmock
      ${AISC_PRIVATE_LIBS})
    target_compile_options(aisc_test_headers PRIVATE -O0)
    target_precompile_headers(aisc_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>
      <fmt/format.h> <algorithm> <chrono> <functional> <map> <thread>)
  endif()
  target_precompile_headers(${target} REUSE_FROM aisc_test_headers)
endfunction()

# A program knows where its sources lie (AISC_SOURCE_DIR): a GPT learns the course's prose. Whoever
# wrote its main(), it begins with start_of_programs.cpp.
function(aisc_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TEST;LIGHT;MEASURES" "" "SOURCES;LIBS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${target}: unknown words: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  aisc_compile_kernels(${arg_SOURCES})
  if(NOT TARGET aisc_start)
    add_library(aisc_start OBJECT "${AISC_ROOT}/cmake/start_of_programs.cpp")
    target_link_libraries(aisc_start PRIVATE aisc_settings)
    if(AISC_SANITIZE MATCHES "address" AND AISC_HAS_MPI)
      target_sources(aisc_start PRIVATE "${AISC_ROOT}/cmake/keep_modules.cpp")
    endif()
  endif()
  add_executable(${target} ${arg_SOURCES} $<TARGET_OBJECTS:aisc_start>)
  aisc_place(${target})
  target_link_libraries(${target} PRIVATE ${arg_LIBS} aisc_settings ${AISC_PRIVATE_LIBS})
  target_compile_definitions(${target} PRIVATE "AISC_SOURCE_DIR=\"${AISC_ROOT}\"")
  if(arg_TEST)
    set_property(TARGET ${target} PROPERTY RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
    set_property(TARGET ${target} PROPERTY UNITY_BUILD ${AISC_UNITY})
    target_compile_options(${target} PRIVATE -O0)
    aisc_precompile(${target})
  elseif(AISC_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  elseif(CMAKE_BUILD_TYPE STREQUAL "Release" AND arg_LIGHT)
    target_compile_options(${target} PRIVATE -O1)
  endif()
  if(NOT AISC_PROGRAMS OR (AISC_SANITIZE AND arg_MEASURES))
    set_property(TARGET ${target} PROPERTY EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

function(aisc_bench target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  if(benchmark_FOUND)
    aisc_program(${target} MEASURES SOURCES ${arg_SOURCES} LIBS ${arg_LIBS} aisc_run_benchmarks)
  else()
    message(STATUS "${target} is not built: Google Benchmark was not found (libbenchmark-dev)")
  endif()
endfunction()

# Compiles `files` into `target`: page.html becomes `std::string aisc::embedded::page_html()`. A
# program then needs no file beside itself. The text is written as raw string literals, in pieces
# of whole lines, since a compiler need not take a literal above 64 KiB.
function(aisc_embed target)
  set(source "// Made by aisc_embed from the files named below.\n#include <string>\n")
  foreach(file IN LISTS ARGN)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(READ "${file}" rest)
    set(mark embed)  # ends the literals: must not occur in the text
    while(rest MATCHES "\\)${mark}\"")
      string(APPEND mark _)
    endwhile()
    get_filename_component(name "${file}" NAME)
    string(MAKE_C_IDENTIFIER "${name}" name)
    string(APPEND source "\n// ${file}\nnamespace aisc::embedded {\n"
      "std::string ${name}();\nstd::string ${name}() {\n  std::string text;\n")
    while(NOT rest STREQUAL "")
      string(SUBSTRING "${rest}" 0 16000 piece)
      string(LENGTH "${rest}" length)
      if(length GREATER 16000)
        string(FIND "${piece}" "\n" end REVERSE)
        if(end LESS 0)
          message(FATAL_ERROR "${file}: a line is longer than 16,000 bytes, too long to embed")
        endif()
        math(EXPR end "${end} + 1")
        string(SUBSTRING "${rest}" 0 ${end} piece)
        string(SUBSTRING "${rest}" ${end} -1 rest)
      else()
        set(rest "")
      endif()
      string(APPEND source "  text += R\"${mark}(${piece})${mark}\";\n")
    endwhile()
    string(APPEND source "  return text;\n}\n}  // namespace aisc::embedded\n")
  endforeach()
  # Written anew only when it differs, so that nothing is compiled for nothing.
  set(path "${CMAKE_CURRENT_BINARY_DIR}/${target}_embedded.cpp")
  file(WRITE "${path}.new" "${source}")
  configure_file("${path}.new" "${path}" COPYONLY)
  target_sources(${target} PRIVATE "${path}")
endfunction()

# Every library of this project that something links to is a target. CMake takes a name that is none for
# a library of the system, and only the linker would say so, minutes later.
function(aisc_require_libraries folder)
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(libs ${target} LINK_LIBRARIES)
    get_target_property(interface_libs ${target} INTERFACE_LINK_LIBRARIES)
    foreach(lib IN LISTS libs interface_libs)
      if(lib MATCHES "^aisc_" AND NOT TARGET ${lib})
        message(SEND_ERROR "${target} links to ${lib}, which nobody makes here: expected a floor of "
          "this project or a module that ${folder}/CMakeLists.txt brings in (aisc_module: LIBS, "
          "TEST_LIBS, WHOLE)")
      endif()
    endforeach()
  endforeach()
  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(inner IN LISTS folders)
    aisc_require_libraries("${inner}")
  endforeach()
endfunction()
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL aisc_require_libraries "${CMAKE_SOURCE_DIR}")
