# Modules: the numbered folders, each declared by one line in its own CMakeLists.txt.
#
#   aisc_module(11_gpt_3d PROGRAMS train_gpt LIBS aisc_app)
#
# makes from the files that are there: the library aisc_NN_name from solution/*.cpp, with exercises
# (lab/*.cpp) the student's beside it; demo_NN_name from demo.cpp; bench_NN_name from bench.cpp; and
# the tests, from tests/NN_name/*_test.cpp. The words:
#   LIBS               what the library stands on; earlier modules (aisc_05_pipeline) are brought in,
#                      as are those of TEST_LIBS and WHOLE
#   LOOPS PRECOMPILE   of its library, as in aisc_library
#   PACKAGES           likewise; with exercises, of the given part, which must have a file then
#   PROGRAMS a b       programs, from a.cpp and b.cpp; MEASURES and LIGHT name some of these
#   PROGRAM_LIBS       what these stand on beside the library: later floors, earlier modules
#   BENCH_LIBS         with these the benchmark is a program, in place of Google Benchmark
#   TEST_LIBS          what the tests stand on besides; aisc_test_support is the whole harness
#   GPU NO_THREADS WHOLE SANITIZED UNSANITIZED UNSANITIZED_ON_GPU     of its tests, as in
#                      aisc_test_room

# Is what belongs to a module made in this build? Alone (AISC_ALONE), only that module's is.
function(aisc_is_built out module)
  set(${out} ON PARENT_SCOPE)
  if(AISC_ALONE AND NOT AISC_ALONE STREQUAL module)
    set(${out} OFF PARENT_SCOPE)
  endif()
endfunction()

# Brings module NN_name in, once, whoever asks first.
function(aisc_use_module module)
  if(NOT TARGET aisc_${module})
    set(unless_needed)
    if(AISC_ALONE OR module IN_LIST AISC_LEFT_OUT)
      set(unless_needed EXCLUDE_FROM_ALL)
    endif()
    add_subdirectory("${AISC_ROOT}/${module}" "${CMAKE_BINARY_DIR}/${module}" ${unless_needed})
  endif()
endfunction()

# Brings in those modules of which a library is among these.
function(aisc_use_modules_of)
  foreach(lib IN LISTS ARGN)
    if(lib MATCHES "^aisc_([0-9][0-9]_.*)$")
      aisc_use_module(${CMAKE_MATCH_1})
    endif()
  endforeach()
endfunction()

# The library of a module with exercises, whose files in lab/ are the student's. Three, so that both
# build against the same headers and the same given code:
#   aisc_NN_name_given   the files of solution/ without an exercise
#   aisc_NN_name         the reference: the files of solution/ that lab/ has, too, or where they were
#                        not handed out prebuilt/libaisc_NN_name.a. What programs and later modules
#                        link; the student's take its place by `--mine` alone
#   aisc_NN_name_lab     the student's files; not part of `all`, since they need not compile
# Given code may call what is an exercise (a menu of algorithms calls them all), and that in turn
# given code (what a choice costs): the linker goes through all archives until nothing is missing.
# The words behind the three lists are those of aisc_library.
function(aisc_lab_libraries module given lab libs)
  set(folder "${AISC_ROOT}/${module}")
  set(solution)
  foreach(file IN LISTS lab)
    get_filename_component(name "${file}" NAME)
    list(REMOVE_ITEM given "${folder}/solution/${name}")
    if(EXISTS "${folder}/solution/${name}")
      list(APPEND solution "${folder}/solution/${name}")
    endif()
  endforeach()
  set(given_libs ${libs} aisc_${module}_given)
  set(prebuilt "${folder}/prebuilt/libaisc_${module}.a")
  if(EXISTS "${folder}/prebuilt/FOR")
    file(STRINGS "${folder}/prebuilt/FOR" kind)
    if(NOT kind STREQUAL CMAKE_SYSTEM_PROCESSOR)
      message(FATAL_ERROR "${prebuilt} is for processors ${kind}, and this is compiled for "
        "${CMAKE_SYSTEM_PROCESSOR}: ask your instructor for the course as exported on such a machine.")
    endif()
  endif()
  aisc_library(aisc_${module}_given SOURCES ${given} LIBS ${libs} ${ARGN})
  aisc_library(aisc_${module}_lab SOURCES ${lab} LIBS ${given_libs})
  # Exercises are compiled each by itself: so grades and mutants put other files in their place.
  set_target_properties(aisc_${module}_lab PROPERTIES EXCLUDE_FROM_ALL ON AISC_LAB ON UNITY_BUILD OFF)
  if(solution AND NOT EXISTS "${prebuilt}")
    aisc_library(aisc_${module} SOURCES ${solution} LIBS ${given_libs} ${ARGN})
    set_target_properties(aisc_${module} PROPERTIES AISC_SOLUTION ON UNITY_BUILD OFF)
  else()
    aisc_library(aisc_${module} LIBS "${prebuilt}" ${given_libs} ${AISC_PRIVATE_LIBS})
    set_property(TARGET aisc_${module} PROPERTY AISC_SOLUTION ON)
  endif()
endfunction()

function(aisc_module_programs module)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" ""
    "PROGRAMS;PROGRAM_LIBS;LIGHT;MEASURES;BENCH_LIBS")
  set(folder "${AISC_ROOT}/${module}")
  set(libs aisc_${module} aisc_flags)
  foreach(program IN LISTS arg_PROGRAMS)
    set(words)
    foreach(word IN ITEMS LIGHT MEASURES)
      if(program IN_LIST arg_${word})
        list(APPEND words ${word})
      endif()
    endforeach()
    aisc_program(${program} ${words} SOURCES "${folder}/${program}.cpp"
      LIBS ${libs} ${arg_PROGRAM_LIBS})
  endforeach()
  if(AISC_PROGRAMS AND NOT module IN_LIST AISC_LEFT_OUT)
    list(JOIN arg_MEASURES "|" measures)
    list(FILTER arg_PROGRAMS EXCLUDE REGEX "^(${measures})$")
    aisc_needed_by_tests(programs ${arg_PROGRAMS})
  endif()
  if(EXISTS "${folder}/demo.cpp")
    aisc_program(demo_${module} LIGHT MEASURES SOURCES "${folder}/demo.cpp" LIBS ${libs})
  endif()
  if(arg_BENCH_LIBS)
    aisc_program(bench_${module} MEASURES SOURCES "${folder}/bench.cpp"
      LIBS aisc_${module} ${arg_BENCH_LIBS})
  elseif(EXISTS "${folder}/bench.cpp")
    aisc_bench(bench_${module} SOURCES "${folder}/bench.cpp" LIBS ${libs})
  endif()
endfunction()

function(aisc_module module)
  set(flags LOOPS PRECOMPILE GPU NO_THREADS SANITIZED)
  set(lists LIBS PACKAGES PROGRAMS PROGRAM_LIBS LIGHT MEASURES BENCH_LIBS TEST_LIBS WHOLE
    UNSANITIZED UNSANITIZED_ON_GPU)
  cmake_parse_arguments(PARSE_ARGV 1 arg "${flags}" "" "${lists}")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${module}: unknown words: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  foreach(word IN LISTS flags)  # each is passed on as it was said
    set(${word} "")
    if(arg_${word})
      set(${word} ${word})
    endif()
  endforeach()
  aisc_use_modules_of(${arg_LIBS} ${arg_PROGRAM_LIBS})
  aisc_sources(sources "${AISC_ROOT}/${module}/solution")
  aisc_sources(more "${AISC_ROOT}/${module}/more")
  list(APPEND sources ${more})
  file(GLOB lab CONFIGURE_DEPENDS "${AISC_ROOT}/${module}/lab/*.cpp")
  if(lab)
    aisc_lab_libraries(${module} "${sources}" "${lab}" "${arg_LIBS}" ${LOOPS} ${PRECOMPILE})
    aisc_use_packages(aisc_${module}_given ${arg_PACKAGES})
  else()
    aisc_library(aisc_${module} ${LOOPS} ${PRECOMPILE} SOURCES ${sources} LIBS ${arg_LIBS}
      PACKAGES ${arg_PACKAGES})
  endif()
  aisc_module_programs(${module} PROGRAMS ${arg_PROGRAMS} PROGRAM_LIBS ${arg_PROGRAM_LIBS}
    LIGHT ${arg_LIGHT} MEASURES ${arg_MEASURES} BENCH_LIBS ${arg_BENCH_LIBS})
  aisc_is_built(built ${module})
  if(AISC_TESTS AND built)
    aisc_use_modules_of(${arg_TEST_LIBS} ${arg_WHOLE})
    set(harness ALONE)
    if("aisc_test_support" IN_LIST arg_TEST_LIBS)
      set(harness "")
    endif()
    aisc_test_room(${module} ${harness} ${GPU} ${NO_THREADS} ${SANITIZED}
      LIBS aisc_${module} ${arg_TEST_LIBS} WHOLE ${arg_WHOLE} UNSANITIZED ${arg_UNSANITIZED}
      UNSANITIZED_ON_GPU ${arg_UNSANITIZED_ON_GPU})
  endif()
endfunction()
