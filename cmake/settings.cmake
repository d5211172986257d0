# Options, and how every file of the project is compiled: the interface target aisc_settings.
include(CheckCXXCompilerFlag)

option(AISC_NATIVE "Compile for the processor of this machine" ON)
set(AISC_MARCH "" CACHE STRING
  "Compile for this one instead, as the compiler's -march takes it: x86-64-v3, armv8.2-a")
option(AISC_WERROR "Treat warnings as errors (CI does)" OFF)
option(AISC_TESTS "Build the tests" ON)
set(AISC_SHARDS 0 CACHE STRING
  "Processes that run the tests of a room, and no test by itself; 0: four, and each by itself")
set(AISC_LEFT_OUT "" CACHE STRING
  "Numbered modules that are not compiled, unless another needs them, nor tested; labs: tests of graders")
set(precompile ON)
if(CMAKE_CXX_COMPILER_LAUNCHER)  # ccache and precompiled headers stand in each other's way
  set(precompile OFF)
endif()
option(AISC_PRECOMPILE "Compile the headers of tests once: quicker from nothing" ${precompile})
option(AISC_PROGRAMS "Build the programs and benchmarks, not only libraries and tests" ON)
option(AISC_FUZZ "Build the fuzzer (clang; preset asan)" OFF)
option(AISC_ONEDNN "Matrix products by oneDNN; OFF: the plain blocked product" ON)
set(AISC_CUDA OFF CACHE STRING
  "Build the CUDA device: OFF, ON, or EMULATED: its code runs on the CPU, for tests (emulated_gpu)")
set_property(CACHE AISC_CUDA PROPERTY STRINGS OFF ON EMULATED)
option(AISC_MPI "Build the MPI backend when MPI is found" ON)
option(AISC_NCCL "Build the NCCL backend when NCCL is found" ON)
set(AISC_HEADERS "$ENV{AISC_HEADERS}" CACHE PATH
  "Packages in a folder in place of installed ones: what tools/authors/gpu_check --pack filled")
set(AISC_SANITIZE "" CACHE STRING
  "Sanitizers, as -fsanitize= takes them: address,undefined or thread")
set(unity OFF)
if(AISC_ALONE OR AISC_SANITIZE)
  set(unity ON)
endif()
option(AISC_UNITY "Compile the files of a library together, eight at a time: quicker from nothing" ${unity})

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "The compiler is GCC ${CMAKE_CXX_COMPILER_VERSION} (${CMAKE_CXX_COMPILER}); "
    "GCC 12 or newer is needed. `./aisc setup` installs one; or give -DCMAKE_CXX_COMPILER=g++-12.")
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  message(FATAL_ERROR "The compiler is Clang ${CMAKE_CXX_COMPILER_VERSION} "
    "(${CMAKE_CXX_COMPILER}); Clang 14 or newer is needed.")
endif()

if(AISC_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "The compiler is ${CMAKE_CXX_COMPILER}; the fuzzer needs Clang. "
    "-DAISC_FUZZ=OFF does without it.")
endif()

get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(NOT CMAKE_BUILD_TYPE AND NOT multi_config)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(aisc_settings INTERFACE)
target_include_directories(aisc_settings INTERFACE "${AISC_ROOT}")

# Contracting a*b+c into one instruction is wanted; -ffast-math is not: it deletes tests for NaN and
# flushes denormals. The last two flags give up only errno and the floating-point trap flags.
# Members left out of a designated initializer are meant to take their defaults: no warning.
set(cxx_flags -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
  -ffp-contract=fast -fno-math-errno -fno-trapping-math)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND cxx_flags -Wno-pass-failed)  # tells of each `omp simd` loop it does not vectorize
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # Takes what a function returns by reference for a part of its temporary arguments, and is wrong.
  list(APPEND cxx_flags -Wno-dangling-reference)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  list(APPEND cxx_flags -Wno-psabi)  # notes that GCC 9 passed some arguments in other registers
endif()
if(AISC_WERROR)
  list(APPEND cxx_flags -Werror)
endif()
if(AISC_MARCH)
  list(APPEND cxx_flags -march=${AISC_MARCH})
elseif(AISC_NATIVE AND NOT CMAKE_CROSSCOMPILING)
  check_cxx_compiler_flag(-march=native AISC_ACCEPTS_MARCH_NATIVE)
  if(AISC_ACCEPTS_MARCH_NATIVE)
    list(APPEND cxx_flags -march=native)
  else()  # Clang for ARM
    check_cxx_compiler_flag(-mcpu=native AISC_ACCEPTS_MCPU_NATIVE)
    if(AISC_ACCEPTS_MCPU_NATIVE)
      list(APPEND cxx_flags -mcpu=native)
    endif()
  endif()
endif()
if(AISC_MARCH OR AISC_NATIVE)
  check_cxx_compiler_flag(-mprefer-vector-width=512 AISC_ACCEPTS_VECTOR_WIDTH)
  if(AISC_ACCEPTS_VECTOR_WIDTH)
    list(APPEND cxx_flags -mprefer-vector-width=512)
  endif()
endif()
# GCC 12.1 and 12.2 (Debian 12) store a 32-byte constant {a, a, 0, 0} as {a, a, a, a} where they use
# AVX-512 (GCC bug 108599). Moves of at most 16 bytes avoid it; loops are vectorised as before.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12.3)
  check_cxx_compiler_flag("-mmove-max=128 -mstore-max=128" AISC_ACCEPTS_MOVE_MAX)
  if(AISC_ACCEPTS_MOVE_MAX)
    list(APPEND cxx_flags -mmove-max=128 -mstore-max=128)
  endif()
endif()
if(AISC_SANITIZE)
  list(APPEND cxx_flags -fsanitize=${AISC_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(aisc_settings INTERFACE -fsanitize=${AISC_SANITIZE})
  if(AISC_SANITIZE MATCHES "undefined")
    list(APPEND cxx_flags -fno-sanitize-recover=undefined)
  endif()
endif()
target_compile_options(aisc_settings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${cxx_flags}>")
# Stubs do not use what they are given yet.
target_compile_options(aisc_settings INTERFACE
  "$<$<BOOL:$<TARGET_PROPERTY:AISC_LAB>>:-Wno-error;-Wno-unused;-Wno-unused-parameter>")
