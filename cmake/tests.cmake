# Tests: words of rooms (folders of tests/), of ranks that are processes, and of scripts. Modules
# have the room of their name without asking (modules.cmake).
#
#   aisc_test_room(nn LIBS aisc_nn)
#
# makes nn_test of tests/nn/*_test.cpp, and ctest knows each of its tests. The words:
#   LIBS              what is tested, and what the tests stand on besides
#   ALONE             without tests/support, which stands on all floors: main() is GoogleTest's
#   GPU               some of its tests need a GPU: tools/authors/gpu_check runs these, and those of
#                     WHOLE where there is a whole/gpu_test.cpp
#   NO_THREADS        has nothing for the thread sanitizer, and is not in its build
#   UNSANITIZED a b   tests (filters of GoogleTest) that sanitizers leave out; UNSANITIZED_ON_GPU
#                     likewise, on an emulated GPU
#   WHOLE libs        tests/<room>/whole, which needs all of a module's exercises at once and grades
#                     none, is a binary of its own, with these libs; sanitizers leave it out, but
#                     where the room is SANITIZED
#
#   aisc_test_processes(comm SOURCES faults_test.cpp RANKS 2 3 4)    the same tests under mpirun;
#     of a module's tests of the whole the room is 03_name_whole
#   aisc_test_program(race_01 01_name.race.is_reported SANITIZER thread SAYS "data race" ELSE "why not")
#   aisc_test_scripts(programs tools)                                tests/programs/*_test ...
#
# The target aisc_tests is what `./aisc test` builds: the binaries of all rooms, and the programs that
# tests/programs runs. tests/tools needs all there is.

# Where programs run slower than elsewhere, as in an emulator, their tests may take longer.
set(AISC_SLOWER 1 CACHE STRING "Times as long as tests may take, a whole number")
set(AISC_TESTS_LEFT_OUT "" CACHE STRING
  "Tests that are not run, by GoogleTest's filters: in an emulator, those of what it lacks")
if(NOT AISC_SLOWER MATCHES "^[1-9][0-9]*$")
  message(FATAL_ERROR "AISC_SLOWER=${AISC_SLOWER}: expected a whole number, at least 1")
endif()

# Seconds that a test may take, here.
function(aisc_timeout out seconds)
  math(EXPR product "${seconds} * ${AISC_SLOWER}")
  set(${out} ${product} PARENT_SCOPE)
endfunction()

# Environment of every test: threads that wait sleep, since several tests share the cores. The
# thread sanitizer learns from Archer, which clang's OpenMP runtime loads by itself, what OpenMP
# orders, and has to leave out the runtime itself. Scripts read and write UTF-8 in any locale.
set(AISC_TEST_ENVIRONMENT
  OMP_WAIT_POLICY=passive
  AISC_SLOWER=${AISC_SLOWER}
  PYTHONUTF8=1
  "LSAN_OPTIONS=suppressions='${AISC_ROOT}/cmake/lsan.supp':print_suppressions=0"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=ignore_noninstrumented_modules=1")

# What sanitizers need not see: they look at memory and threads, and of what differs in numbers,
# sizes or what happens around it one case of each kind is enough, above all on an emulated GPU,
# which is slow: `./aisc test --preset emulated` runs the rest. Here are kinds of cases, in any
# room; single tests are UNSANITIZED where their room is declared.
set(AISC_UNSANITIZED)
if(AISC_SANITIZE MATCHES "address")
  list(APPEND AISC_UNSANITIZED */Delayed */Late */Nodes */F64 */F16)
endif()
if(AISC_SANITIZE AND AISC_CUDA STREQUAL "EMULATED")
  list(APPEND AISC_UNSANITIZED */F64_cuda */F16_cuda */CudaPlans */CudaLate */NcclPlans */NcclLate)
endif()

# A line each: the programs with tests for a GPU.
set(AISC_GPU_TESTS "${CMAKE_BINARY_DIR}/gpu_tests.txt")
file(WRITE "${AISC_GPU_TESTS}" "")

# Programs that `./aisc test` builds; those of a room, `./aisc test <room>`. A room that has none in
# this build has its target as well.
add_custom_target(aisc_tests)
file(GLOB rooms RELATIVE "${AISC_ROOT}/tests" "${AISC_ROOT}/tests/*")
list(FILTER rooms EXCLUDE REGEX "\\.")
foreach(room IN LISTS rooms)
  add_custom_target(tests_of_${room})
endforeach()
function(aisc_needed_by_tests room)
  if(ARGN)
    add_dependencies(aisc_tests ${ARGN})
    if(TARGET tests_of_${room})
      add_dependencies(tests_of_${room} ${ARGN})
    endif()
  endif()
endfunction()

function(aisc_test_room room)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ALONE;GPU;NO_THREADS;SANITIZED" ""
    "LIBS;WHOLE;UNSANITIZED;UNSANITIZED_ON_GPU")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tests of ${room}: unknown words: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${AISC_ROOT}/tests/${room}/*_test.cpp")
  # What only builds with CUDA have: tests/<room>/cuda; of the support it is in its library.
  if(AISC_HAS_CUDA AND NOT room STREQUAL "support")
    file(GLOB cuda CONFIGURE_DEPENDS "${AISC_ROOT}/tests/${room}/cuda/*.cpp"
      "${AISC_ROOT}/tests/${room}/cuda/*.cu")
    if(cuda)
      list(APPEND sources ${cuda})
      list(APPEND arg_LIBS aisc_cuda)
    endif()
  endif()
  if(NOT sources OR room IN_LIST AISC_LEFT_OUT
      OR (AISC_SANITIZE MATCHES "thread" AND arg_NO_THREADS))
    return()
  endif()
  set(unsanitized ${arg_UNSANITIZED})
  if(AISC_CUDA STREQUAL "EMULATED")
    list(APPEND unsanitized ${arg_UNSANITIZED_ON_GPU})
  endif()
  set(support aisc_test_support)
  if(arg_ALONE)
    set(support GTest::gtest_main)
  endif()
  aisc_test(${room} SOURCES ${sources} LIBS ${support} ${arg_LIBS} UNSANITIZED ${unsanitized})
  if(arg_GPU AND TARGET ${room}_test)
    file(APPEND "${AISC_GPU_TESTS}" "${room}_test\n")
  endif()
  if(arg_WHOLE AND (arg_SANITIZED OR NOT AISC_SANITIZE))
    get_target_property(has_solution aisc_${room} AISC_SOLUTION)
    if(has_solution OR NOT TARGET aisc_${room}_lab)
      file(GLOB sources CONFIGURE_DEPENDS "${AISC_ROOT}/tests/${room}/whole/*_test.cpp")
      aisc_test(${room}_whole SOURCES ${sources} LIBS aisc_test_support aisc_${room} ${arg_WHOLE}
        UNSANITIZED ${unsanitized})
      if(EXISTS "${AISC_ROOT}/tests/${room}/whole/gpu_test.cpp" AND TARGET ${room}_whole_test)
        file(APPEND "${AISC_GPU_TESTS}" "${room}_whole_test\n")
      endif()
    endif()
  endif()
endfunction()

# Makes <name>_test and tells ctest each of its tests as <name>.<Suite>.<Test>, label `single`, and
# all of them once more as <name>.1_of_4 ..., label `shard`: four processes that run a quarter each,
# since starting a process takes longer than most tests. tools/run_tests takes the ones or the others.
# A skipped test is reported as not run, never as passed. The binary starts its ranks itself, as
# threads.
# The tests of a module with exercises are labelled `solution`, and aisc_lab_tests links them once
# more.
function(aisc_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS;UNSANITIZED")
  set(target ${name}_test)
  set(left_out ${AISC_TESTS_LEFT_OUT})
  if(AISC_SANITIZE)
    list(APPEND left_out ${AISC_UNSANITIZED} ${arg_UNSANITIZED})
  endif()
  set(filter "*")
  if(left_out)
    list(JOIN left_out ":" left_out)
    set(filter "-${left_out}")
  endif()
  set(labels ${name})
  set(libs ${arg_LIBS} GTest::gtest GTest::gmock)
  if(TARGET aisc_${name}_lab)
    aisc_lab_tests(${name} "${arg_SOURCES}" "${libs}")
    get_target_property(has_solution aisc_${name} AISC_SOLUTION)
    if(NOT has_solution)
      return()
    endif()
    set(arg_SOURCES $<TARGET_OBJECTS:${name}_tests>)
    list(APPEND labels solution)
  endif()
  aisc_program(${target} TEST SOURCES ${arg_SOURCES} LIBS ${libs})
  set_property(TARGET ${target} PROPERTY EXCLUDE_FROM_ALL OFF)
  string(REGEX REPLACE "_whole$" "" room "${name}")
  aisc_needed_by_tests(${room} ${target})
  set(shards 4)
  set(label ";shard")
  aisc_timeout(shard_timeout 900)
  aisc_timeout(timeout 300)
  aisc_timeout(discovery_timeout 60)
  if(AISC_SHARDS)
    set(shards ${AISC_SHARDS})
    set(label "")
  elseif(AISC_ALONE)
    set(shards 0)
  endif()
  if(shards)
    foreach(index RANGE 1 ${shards})
      set(shard ${name}.${index}_of_${shards})
      add_test(NAME ${shard} WORKING_DIRECTORY "${AISC_ROOT}" COMMAND ${target}
        "--gtest_filter=${filter}" "--gtest_output=xml:${CMAKE_BINARY_DIR}/shards/${shard}.xml")
      math(EXPR index "${index} - 1")
      set_tests_properties(${shard} PROPERTIES TIMEOUT ${shard_timeout} LABELS "${name}${label}"
        ENVIRONMENT
          "${AISC_TEST_ENVIRONMENT};GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index}")
    endforeach()
  endif()
  if(AISC_SHARDS)
    return()
  endif()
  gtest_discover_tests(${target} TEST_PREFIX "${name}." TEST_LIST ${target}_cases
    TEST_FILTER "${filter}" NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT ${discovery_timeout} WORKING_DIRECTORY "${AISC_ROOT}"
    PROPERTIES TIMEOUT ${timeout})
  # Properties that are lists do not pass through gtest_discover_tests: they are set afterwards.
  set(file "${CMAKE_CURRENT_BINARY_DIR}/${target}_properties.cmake")
  file(WRITE "${file}" "foreach(case IN LISTS ${target}_cases)\n"
    "  set_tests_properties(\"\${case}\" PROPERTIES LABELS \"${labels};single\"\n"
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
  set_property(TARGET ${name}_tests PROPERTY UNITY_BUILD ${AISC_UNITY})
  aisc_precompile(${name}_tests)
  aisc_program(${name}_lab_test TEST SOURCES $<TARGET_OBJECTS:${name}_tests>
    LIBS ${libs} aisc_${name}_lab)
  set_property(TARGET ${name}_lab_test PROPERTY EXCLUDE_FROM_ALL ON)
  add_custom_target(lab${number}_given DEPENDS ${name}_tests aisc_${name}_given aisc_start)
  foreach(lib IN LISTS libs)
    if(TARGET ${lib} AND lib MATCHES "^aisc_")
      add_dependencies(lab${number}_given ${lib})
    endif()
  endforeach()

  find_package(Python3 QUIET COMPONENTS Interpreter)
  set(toml "${AISC_ROOT}/${name}/lab.toml")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${toml}")
  aisc_timeout(timeout 900)
  file(STRINGS "${toml}" lines REGEX "^id = \"[0-9]+\\.[0-9]+\"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^id = \"([0-9.]+)\".*" "\\1" id "${line}")
    add_test(NAME lab.${id} WORKING_DIRECTORY "${AISC_ROOT}"
      COMMAND "${Python3_EXECUTABLE}" "${AISC_ROOT}/tools/grade" --build "${CMAKE_BINARY_DIR}"
      ${id})
    set_tests_properties(lab.${id} PROPERTIES LABELS lab${number} TIMEOUT ${timeout}
      SKIP_RETURN_CODE 77)
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
# source instantiates (INSTANTIATE_TEST_SUITE_P). Skipped where MPI is absent. Sanitizers, which
# make processes slow, run them for the numbers in SANITIZED alone, if any. WAITS: these ranks wait
# most of the time, and take one processor together.
function(aisc_test_processes name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "WAITS" "" "SOURCES;RANKS;SANITIZED")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "processes of ${name}: unknown words: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(AISC_SANITIZE)
    set(arg_RANKS ${arg_SANITIZED})
  endif()
  if(NOT TARGET ${name}_test)  # a module's tests of the whole, where they are left out
    return()
  endif()
  string(REGEX REPLACE "_whole$" "/whole" folder "${name}")
  aisc_timeout(timeout 300)
  foreach(source IN LISTS arg_SOURCES)
    set(path "${AISC_ROOT}/tests/${folder}/${source}")
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
      set(processors 2)  # where there are more ranks, another test beside them hardly matters
      if(arg_WAITS OR ranks EQUAL 1)
        set(processors 1)
      endif()
      if(AISC_HAS_MPI)
        add_test(NAME ${test} WORKING_DIRECTORY "${AISC_ROOT}" COMMAND "${MPIEXEC_EXECUTABLE}"
          ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${name}_test> --gtest_filter=${suites})
      else()
        add_test(NAME ${test} COMMAND "${CMAKE_COMMAND}" -E echo "MPI was not found")
        set_tests_properties(${test} PROPERTIES SKIP_REGULAR_EXPRESSION "MPI was not found")
      endif()
      set_tests_properties(${test} PROPERTIES TIMEOUT ${timeout} PROCESSORS ${processors}
        COST ${ranks} LABELS "${name};mpi" ENVIRONMENT "${AISC_TEST_ENVIRONMENT};${AISC_MPI_TEST_ENVIRONMENT}")
    endforeach()
  endforeach()
endfunction()

# One test of ctest, <room>.<what>.<test>: a program that a sanitizer has to say something of. In
# other builds it is skipped, for the reason ELSE.
function(aisc_test_program target test)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "SANITIZER;SAYS;ELSE" "")
  string(REGEX REPLACE "\\..*" "" room "${test}")
  aisc_is_built(built ${room})
  if(NOT AISC_TESTS OR NOT built)
    return()
  endif()
  if(AISC_SANITIZE MATCHES "${arg_SANITIZER}")
    aisc_needed_by_tests(${room} ${target})
    add_test(NAME ${test} COMMAND ${target})
    set_tests_properties(${test} PROPERTIES PASS_REGULAR_EXPRESSION "${arg_SAYS}")
  else()
    add_test(NAME ${test} COMMAND "${CMAKE_COMMAND}" -E echo "${arg_ELSE}")
    set_tests_properties(${test} PROPERTIES SKIP_REGULAR_EXPRESSION "${arg_ELSE}")
  endif()
  aisc_timeout(timeout 60)
  set_tests_properties(${test} PROPERTIES TIMEOUT ${timeout} LABELS ${room}
    ENVIRONMENT "${AISC_TEST_ENVIRONMENT}")
endfunction()

# Tests that are scripts, of rooms whose names are given: tests/programs for the programs that train,
# tests/tools for benchmarks, demos and what grades labs (`./aisc test` leaves it out, `./aisc test
# tools` runs it). Each method `test_...` of <room>/*_test is one test; exit code 77 is a skip. They
# take longest (COST): ctest begins with them, so that it does not end with one alone. A line `# ctest: ...` of a script has words, too:
#   UNSANITIZED     what it looks at is the same in every build, or is for the fast one: sanitizers
#                   leave it out
#   OF 11_gpt_3d    tests what is of that module, or of labs: left out where AISC_LEFT_OUT names it
#   TIMEOUT 600     seconds, for those that compile
function(aisc_test_scripts)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  set(scripts)
  foreach(room IN LISTS ARGN)
    file(GLOB more CONFIGURE_DEPENDS "${AISC_ROOT}/tests/${room}/*_test")
    list(APPEND scripts ${more})
  endforeach()
  foreach(script IN LISTS scripts)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${script}")
    file(STRINGS "${script}" words REGEX "^# ctest: ")
    string(REGEX REPLACE "^# ctest: +" "" words "${words}")
    separate_arguments(words)
    cmake_parse_arguments(arg "UNSANITIZED" "TIMEOUT" "OF" ${words})
    if(arg_UNPARSED_ARGUMENTS)
      message(FATAL_ERROR "${script}: unknown words: ${arg_UNPARSED_ARGUMENTS}")
    endif()
    set(left_out OFF)
    foreach(needed IN LISTS arg_OF)
      if(needed IN_LIST AISC_LEFT_OUT)
        set(left_out ON)
      endif()
    endforeach()
    if(left_out OR (AISC_SANITIZE AND arg_UNSANITIZED))
      continue()
    endif()
    if(NOT arg_TIMEOUT)
      set(arg_TIMEOUT 300)
    endif()
    aisc_timeout(timeout ${arg_TIMEOUT})
    get_filename_component(suite "${script}" NAME)
    get_filename_component(room "${script}" DIRECTORY)
    get_filename_component(room "${room}" NAME)
    file(STRINGS "${script}" cases REGEX "^ +def test_")
    foreach(line IN LISTS cases)
      string(REGEX REPLACE "^ +def (test_[a-z0-9_]+).*" "\\1" case "${line}")
      set(test ${room}.${suite}.${case})
      add_test(NAME ${test} COMMAND "${Python3_EXECUTABLE}" "${script}" ${case})
      set_tests_properties(${test} PROPERTIES TIMEOUT ${timeout} COST 100
        SKIP_RETURN_CODE 77 LABELS "${room};script"
        ENVIRONMENT "AISC_BUILD=${CMAKE_BINARY_DIR};AISC_MPI=${AISC_HAS_MPI};${AISC_TEST_ENVIRONMENT}")
    endforeach()
  endforeach()
endfunction()
