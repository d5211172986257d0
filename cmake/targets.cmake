# The words the CMakeLists.txt files are written in:
#
#   aisc_floor(nn LIBS aisc_ops aisc_comm)             a floor of common/: one static library
#   aisc_module(11_gpt_3d PROGRAMS train_gpt LIBS ...) a numbered module: library, programs, bench
#   aisc_test(ops SOURCES ... LIBS ...)                a GoogleTest binary; ctest knows each test
#   aisc_test_processes(comm SOURCES ... RANKS 2 3)    the same binary under mpirun
#   aisc_bench(bench_ops SOURCES ... LIBS ...)         a Google Benchmark binary
#   aisc_embed(aisc_11_gpt_3d report/page.html ...)    files that a library carries in itself

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

# What has long loops over numbers. Tests, and with sanitizers all other libraries, are compiled
# with -O0, in half the time, and hardly take longer: the loops of tests are in tests/support.
set(AISC_WITH_LOOPS
  "^aisc_(core|ops|nn|emulated_gpu|test_support|test_comm_support|(01_mutex_mae|09_collectives)(_given)?)$")
# What reads a command line, with CLI11, which takes a compiler half a minute to optimize.
set(AISC_READS_FLAGS "(^|/)(options|bench_flags)\\.cpp$")

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

# A library of `sources` that uses `libs`; without sources yet, only a name for `libs`.
function(aisc_library target sources libs)
  aisc_compile_kernels(${sources})
  set(flags ${sources})
  list(FILTER flags INCLUDE REGEX "${AISC_READS_FLAGS}")
  set_source_files_properties(${flags} PROPERTIES COMPILE_OPTIONS -O0)
  if(sources)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PUBLIC aisc_settings ${libs} PRIVATE ${AISC_PRIVATE_LIBS})
    if(AISC_SANITIZE)
      set_property(TARGET ${target} PROPERTY EXCLUDE_FROM_ALL ON)  # unless a test needs it
      if(NOT target MATCHES "${AISC_WITH_LOOPS}")
        target_compile_options(${target} PRIVATE -O0)
      endif()
    endif()
    if(AISC_PRECOMPILE AND AISC_SANITIZE AND target MATCHES "^aisc_(comm|nn|formats|09_collectives(_given)?|11_gpt_3d)$")
      target_precompile_headers(${target} PRIVATE <fmt/format.h> <nlohmann/json.hpp> <algorithm>
        <functional> <map> <memory> <thread>)
    endif()
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE aisc_settings ${libs})
  endif()
endfunction()

# The heavy headers of tests, compiled once for all test programs without optimization: half the time
# that compiling them takes. For builds from nothing (CI): ccache and precompiled headers stand in each
# other's way. (With optimization GCC then warns of what is in the standard library's headers.)
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

# A program knows where its sources lie (AISC_SOURCE_DIR): a GPT learns the course's own text.
# What tests and shows (not what measures) need not be fast.
function(aisc_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  aisc_compile_kernels(${arg_SOURCES})
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE ${arg_LIBS} aisc_settings ${AISC_PRIVATE_LIBS})
  target_compile_definitions(${target} PRIVATE "AISC_SOURCE_DIR=\"${AISC_ROOT}\"")
  if(target MATCHES "_test$")
    target_compile_options(${target} PRIVATE -O0)
    aisc_precompile(${target})
  elseif(AISC_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  elseif(CMAKE_BUILD_TYPE STREQUAL "Release" AND target MATCHES "^demo_|^tokenize$")
    target_compile_options(${target} PRIVATE -O1)
  endif()
  if(AISC_SANITIZE MATCHES "address" AND AISC_HAS_MPI)
    target_sources(${target} PRIVATE "${AISC_ROOT}/cmake/keep_modules.cpp")
  endif()
  # What measures or shows is not looked at by sanitizers.
  if(NOT AISC_PROGRAMS OR (AISC_SANITIZE AND target MATCHES "^(bench_([^g]|gpu)|demo|raw_mpi|mpi_ranks|mpi_faults|aisc_machine)"))
    set_property(TARGET ${target} PROPERTY EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# FOLDERS are subfolders compiled into the same library (ops/cpu).
function(aisc_floor name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FOLDERS;LIBS")
  aisc_sources(sources "${AISC_ROOT}/common/${name}")
  foreach(folder IN LISTS arg_FOLDERS)
    aisc_sources(more "${AISC_ROOT}/common/${name}/${folder}")
    list(APPEND sources ${more})
  endforeach()
  aisc_library(aisc_${name} "${sources}" "${arg_LIBS}")
endfunction()

# Links to a floor what only its own .cpp files see.
function(aisc_link_private target)
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "INTERFACE_LIBRARY")
    target_link_libraries(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# Brings module NN_name in, once, whoever asks first.
function(aisc_use_module module)
  if(NOT TARGET aisc_${module})
    set(unless_needed)
    if(module IN_LIST AISC_LEFT_OUT)
      set(unless_needed EXCLUDE_FROM_ALL)
    endif()
    add_subdirectory("${AISC_ROOT}/${module}" "${CMAKE_BINARY_DIR}/${module}" ${unless_needed})
  endif()
endfunction()

# The library of a module with exercises, whose files in lab/ are the student's. Three, so that both
# build against the same headers and the same given code:
#   aisc_NN_name_given   the files of solution/ without an exercise
#   aisc_NN_name         the files of solution/ that lab/ has, too: what later modules link. In its
#                        place the student's (AISC_USE_LABS, or no solution was handed out), or
#                        prebuilt/libaisc_NN_name.a
#   aisc_NN_name_lab     the student's files; not part of `all`, since they need not compile
# Given code may call what is an exercise (a menu of algorithms calls them all), and that in turn
# given code (what a choice costs), so both archives are named again behind the given one.
function(aisc_lab_libraries module given lab libs)
  set(folder "${AISC_ROOT}/${module}")
  set(solution)
  set(complete ON)
  foreach(file IN LISTS lab)
    get_filename_component(name "${file}" NAME)
    list(REMOVE_ITEM given "${folder}/solution/${name}")
    list(APPEND solution "${folder}/solution/${name}")
    if(NOT EXISTS "${folder}/solution/${name}")
      set(complete OFF)
    endif()
  endforeach()
  set(given_libs ${libs} aisc_${module}_given)
  set(given_again "")
  if(given)
    set(given_again $<TARGET_FILE:aisc_${module}_given>)
  endif()
  set(prebuilt "${folder}/prebuilt/libaisc_${module}.a")
  aisc_library(aisc_${module}_given "${given}" "${libs}")
  aisc_library(aisc_${module}_lab "${lab}" "${given_libs}")
  set_target_properties(aisc_${module}_lab PROPERTIES EXCLUDE_FROM_ALL ON AISC_LAB ON)
  target_link_libraries(aisc_${module}_lab INTERFACE $<TARGET_FILE:aisc_${module}_lab>
    ${given_again})
  if(AISC_USE_LABS OR NOT (complete OR EXISTS "${prebuilt}"))
    aisc_library(aisc_${module} "" "aisc_${module}_lab")
  elseif(complete)
    aisc_library(aisc_${module} "${solution}" "${given_libs}")
    target_link_libraries(aisc_${module} INTERFACE $<TARGET_FILE:aisc_${module}> ${given_again})
    set_property(TARGET aisc_${module} PROPERTY AISC_SOLUTION ON)
  else()
    aisc_library(aisc_${module} ""
      "${prebuilt};${given_libs};${prebuilt};${given_again};${AISC_PRIVATE_LIBS}")
    set_property(TARGET aisc_${module} PROPERTY AISC_SOLUTION ON)
  endif()
endfunction()

# Makes aisc_NN_name from NN_name/solution/*.cpp (with exercises: aisc_lab_libraries); every PROGRAM
# from NN_name/<program>.cpp; demo_NN_name from demo.cpp and bench_NN_name from bench.cpp where these
# files exist. LIBS may name an earlier module's library (aisc_05_pipeline), which is brought in.
# With BENCH_LIBS the benchmark is a program with these in place of Google Benchmark.
function(aisc_module module)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "PROGRAMS;LIBS;BENCH_LIBS")
  foreach(lib IN LISTS arg_LIBS)
    if(lib MATCHES "^aisc_([0-9][0-9]_.*)$")
      aisc_use_module(${CMAKE_MATCH_1})
    endif()
  endforeach()
  set(folder "${AISC_ROOT}/${module}")
  aisc_sources(sources "${folder}/solution")
  file(GLOB lab CONFIGURE_DEPENDS "${folder}/lab/*.cpp")
  if(lab)
    aisc_lab_libraries(${module} "${sources}" "${lab}" "${arg_LIBS}")
  else()
    aisc_library(aisc_${module} "${sources}" "${arg_LIBS}")
  endif()
  foreach(program IN LISTS arg_PROGRAMS)
    if(EXISTS "${folder}/${program}.cpp")
      aisc_program(${program} SOURCES "${folder}/${program}.cpp" LIBS aisc_${module} CLI11::CLI11)
    endif()
  endforeach()
  if(EXISTS "${folder}/demo.cpp")
    aisc_program(demo_${module} SOURCES "${folder}/demo.cpp" LIBS aisc_${module} CLI11::CLI11)
  endif()
  if(arg_BENCH_LIBS)
    aisc_program(bench_${module} SOURCES "${folder}/bench.cpp"
      LIBS aisc_${module} ${arg_BENCH_LIBS})
  elseif(EXISTS "${folder}/bench.cpp")
    aisc_bench(bench_${module} SOURCES "${folder}/bench.cpp" LIBS aisc_${module})
  endif()
endfunction()

function(aisc_bench target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  if(benchmark_FOUND)
    aisc_program(${target} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS} benchmark::benchmark)
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

# Environment of every test: threads that wait sleep, since several tests share the cores. The
# thread sanitizer learns from Archer, which clang's OpenMP runtime loads by itself, what OpenMP
# orders, and has to leave out the runtime itself.
set(AISC_TEST_ENVIRONMENT
  OMP_WAIT_POLICY=passive
  "LSAN_OPTIONS=suppressions=${AISC_ROOT}/cmake/lsan.supp:print_suppressions=0"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=ignore_noninstrumented_modules=1")

# What sanitizers need not see: they look at memory and threads, and of what differs in numbers, sizes
# or what happens around it one case of each kind is enough, above all on an emulated GPU, which is
# slow: `./aisc test --preset emulated` runs the rest.
set(AISC_TEST_FILTER "*")
if(AISC_SANITIZE)
  set(left_out Report.LongRun* Report.EvaluationAtEveryStep* Report.MemoryKeeps* Report.SumsAre*
    Tokenizer.EncodesAWordOfAMillion* TokenizerFiles.WithMoreTokens* *TakesTheTimeOfItsFormula*
    *CostsWhatItsFormulaSays* *VirtualPlans.* *MatchesMessagesForUpTo*
    *GptGradient*/plain *GptGradient*/dropout *GptGradient*/accumulation)
  if(AISC_SANITIZE MATCHES "address")
    list(APPEND left_out */Delayed */Late */Nodes */F64 */F16)
  endif()
  if(AISC_CUDA STREQUAL "EMULATED")
    list(APPEND left_out */F64_cuda */F16_cuda */CudaPlans */CudaLate */NcclPlans */NcclLate
      *CachedAttention.OfALongSequence*_cuda *CachedAttention.InPieces*_cuda
      *CachedAttention.Matches*/F32_cuda *Attention.BackwardMatches*/F32_cuda
      *LayerNorm.BackwardMatches*_cuda *Large.*/F32_cuda *OpGradients.OfAttention/cuda
      *LayerGradient.*_cuda *GptOnDevices.MicroBatches*/cuda *CacheOnDevices*/cuda
      *Generate.*/cuda *LaterTokens*/cuda *RunCheckpoint*_cuda *Trainers.*/cuda
      *TrainerOnCuda.StaysNear* *TrainerOnCuda.GoesOn* *OnCudaRanks* *WithAGpuEach*
      *TorchFixture*_cuda)
  endif()
  list(JOIN left_out ":" left_out)
  set(AISC_TEST_FILTER "-${left_out}")
endif()

# Makes <name>_test and tells ctest each of its tests as <name>.<Suite>.<Test>. A skipped test is
# reported as not run, never as passed. The binary starts its ranks itself, as threads.
# ALONE leaves out tests/support, which stands on all floors: main() is GoogleTest's. The tests of a
# module with exercises are labelled `solution`, and aisc_lab_tests links them once more.
function(aisc_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ALONE" "" "SOURCES;LIBS;LABELS")
  set(target ${name}_test)
  set(support aisc_test_support)
  if(arg_ALONE)
    set(support GTest::gtest_main)
  endif()
  set(labels ${name} ${arg_LABELS})
  set(libs ${support} ${arg_LIBS} GTest::gtest GTest::gmock)
  if(TARGET aisc_${name}_lab)
    aisc_lab_tests(${name} "${arg_SOURCES}" "${libs}")
    get_target_property(has_solution aisc_${name} AISC_SOLUTION)
    if(NOT has_solution)
      return()
    endif()
    set(arg_SOURCES $<TARGET_OBJECTS:${name}_tests>)
    list(APPEND labels solution)
  endif()
  aisc_program(${target} SOURCES ${arg_SOURCES} LIBS ${libs})
  set_property(TARGET ${target} PROPERTY EXCLUDE_FROM_ALL OFF)
  if(AISC_SHARDS)
    foreach(index RANGE 1 ${AISC_SHARDS})
      set(shard ${name}.${index}_of_${AISC_SHARDS})
      add_test(NAME ${shard} WORKING_DIRECTORY "${AISC_ROOT}" COMMAND ${target}
        "--gtest_filter=${AISC_TEST_FILTER}" "--gtest_output=xml:${CMAKE_BINARY_DIR}/shards/${shard}.xml")
      math(EXPR index "${index} - 1")
      set_tests_properties(${shard} PROPERTIES TIMEOUT 900 LABELS "${labels}" ENVIRONMENT
        "${AISC_TEST_ENVIRONMENT};GTEST_TOTAL_SHARDS=${AISC_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
    return()
  endif()
  gtest_discover_tests(${target} TEST_PREFIX "${name}." TEST_LIST ${target}_cases
    TEST_FILTER "${AISC_TEST_FILTER}" NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60 WORKING_DIRECTORY "${AISC_ROOT}" PROPERTIES TIMEOUT 300)
  # Properties that are lists do not pass through gtest_discover_tests: they are set afterwards.
  set(file "${CMAKE_CURRENT_BINARY_DIR}/${target}_properties.cmake")
  file(WRITE "${file}" "foreach(case IN LISTS ${target}_cases)\n"
    "  set_tests_properties(\"\${case}\" PROPERTIES LABELS \"${labels}\"\n"
    "    ENVIRONMENT \"${AISC_TEST_ENVIRONMENT}\")\nendforeach()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${file}")
endfunction()

# The tests of a module with exercises, compiled once, <name>_tests, for two programs: <name>_test
# with the solution (aisc_test) and <name>_lab_test with the student's code. ctest grades each
# exercise as lab.01.3, label lab01. The target lab01_given is all but the student's code.
function(aisc_lab_tests name sources libs)
  string(SUBSTRING "${name}" 0 2 number)
  list(REMOVE_ITEM libs aisc_${name})  # may be the student's, which need not compile
  add_library(${name}_tests OBJECT ${sources})
  target_link_libraries(${name}_tests PRIVATE ${libs} aisc_${name}_given aisc_settings
    ${AISC_PRIVATE_LIBS})
  target_compile_options(${name}_tests PRIVATE -O0)
  aisc_precompile(${name}_tests)
  aisc_program(${name}_lab_test SOURCES $<TARGET_OBJECTS:${name}_tests>
    LIBS ${libs} aisc_${name}_lab)
  set_property(TARGET ${name}_lab_test PROPERTY EXCLUDE_FROM_ALL ON)
  add_custom_target(lab${number}_given DEPENDS ${name}_tests aisc_${name}_given)
  foreach(lib IN LISTS libs)
    if(TARGET ${lib} AND lib MATCHES "^aisc_")
      add_dependencies(lab${number}_given ${lib})
    endif()
  endforeach()

  find_package(Python3 QUIET COMPONENTS Interpreter)
  set(toml "${AISC_ROOT}/${name}/lab.toml")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${toml}")
  file(STRINGS "${toml}" lines REGEX "^id = \"[0-9]+\\.[0-9]+\"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^id = \"([0-9.]+)\".*" "\\1" id "${line}")
    add_test(NAME lab.${id} WORKING_DIRECTORY "${AISC_ROOT}"
      COMMAND "${Python3_EXECUTABLE}" "${AISC_ROOT}/tools/grade" --build "${CMAKE_BINARY_DIR}" ${id})
    set_tests_properties(lab.${id} PROPERTIES LABELS lab${number} TIMEOUT 900 SKIP_RETURN_CODE 77)
  endforeach()
endfunction()

# Under mpirun: settings of Open MPI 4 and 5, which other MPIs ignore. More ranks than cores, which
# then yield while they wait; no binding, since other tests run beside; root is welcome.
set(AISC_MPI_TEST_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_hwloc_base_binding_policy=none
  OMPI_MCA_rmaps_base_oversubscribe=1
  OMPI_MCA_mpi_yield_when_idle=1
  PRTE_MCA_hwloc_default_binding_policy=none
  PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe)

# The tests of <name>_test whose ranks may be processes, under mpirun: of each of SOURCES, for each
# number in RANKS, one test of ctest, <name>.mpi.<source>.<ranks>, that runs all suites which the
# source instantiates (INSTANTIATE_TEST_SUITE_P). Skipped where MPI is absent.
function(aisc_test_processes name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;RANKS")
  foreach(source IN LISTS arg_SOURCES)
    set(path "${CMAKE_CURRENT_SOURCE_DIR}/${name}/${source}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
    file(STRINGS "${path}" lines REGEX "^INSTANTIATE_TEST_SUITE_P\\([A-Za-z]+, [A-Za-z]+,")
    list(TRANSFORM lines REPLACE "^[^ ]+ ([A-Za-z]+),.*" "*/\\1.*")
    list(JOIN lines ":" suites)
    if(suites STREQUAL "")
      message(FATAL_ERROR "${path} instantiates no suite that could run on processes")
    endif()
    string(REGEX REPLACE "_test\\.cpp$" "" what "${source}")
    foreach(ranks IN LISTS arg_RANKS)
      set(test ${name}.mpi.${what}.${ranks})
      set(processors ${ranks})
      if(what STREQUAL "faults")  # these ranks wait most of the time
        set(processors 1)
      endif()
      if(AISC_HAS_MPI)
        add_test(NAME ${test} WORKING_DIRECTORY "${AISC_ROOT}" COMMAND "${MPIEXEC_EXECUTABLE}"
          ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${name}_test> --gtest_filter=${suites})
      else()
        add_test(NAME ${test} COMMAND "${CMAKE_COMMAND}" -E echo "MPI was not found")
        set_tests_properties(${test} PROPERTIES SKIP_REGULAR_EXPRESSION "MPI was not found")
      endif()
      set_tests_properties(${test} PROPERTIES TIMEOUT 300 PROCESSORS ${processors} COST ${ranks}
        LABELS "${name};mpi" ENVIRONMENT "${AISC_TEST_ENVIRONMENT};${AISC_MPI_TEST_ENVIRONMENT}")
    endforeach()
  endforeach()
endfunction()
