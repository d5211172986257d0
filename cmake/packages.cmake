# Finds the libraries. A required one that is missing stops with the name of its Debian package;
# an optional one (MPI, NCCL) is looked for only where sources for it exist. AISC_HAS_<package>
# then says for ONEDNN, CUDA, MPI and NCCL whether the package is in use.

# Stops for a package that is missing; where a module is built alone, which may do without, only
# what would use `target` does not compile, and says the same.
function(aisc_missing target what)
  if(NOT AISC_ALONE)
    message(FATAL_ERROR "${what}")
  endif()
  message(STATUS "${what}")
  string(MAKE_C_IDENTIFIER "${target}" name)
  set(header "${CMAKE_BINARY_DIR}/missing/${name}.h")
  file(WRITE "${header}" "#error ${what}\n")
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_compile_options(${target} INTERFACE "SHELL:-include \"${header}\"")
endfunction()

# The package's target is <package>::<package>.
function(aisc_require package debian)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    aisc_missing(${package}::${package} "${package} was not found (Debian and Ubuntu: ${debian}). \
`./aisc setup` installs what is missing.")
  endif()
endfunction()

find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
target_link_libraries(aisc_settings INTERFACE OpenMP::OpenMP_CXX Threads::Threads)

# AISC_HEADERS: a folder with the packages, for machines that have none and no network.
if(AISC_HEADERS)
  include("${CMAKE_CURRENT_LIST_DIR}/carried_packages.cmake")
else()
  aisc_require(fmt libfmt-dev CONFIG)
  aisc_require(nlohmann_json nlohmann-json3-dev CONFIG)
  aisc_require(CLI11 libcli11-dev CONFIG)

  # Libraries that come without a CMake package: aisc_utf8proc (classes of Unicode characters) and
  # aisc_xxhash (checksums), each with its header's folder.
  foreach(library IN ITEMS utf8proc xxhash)
    string(TOUPPER "${library}" name)
    find_path(AISC_${name}_INCLUDE ${library}.h)
    find_library(AISC_${name}_LIBRARY NAMES ${library})
    if(NOT AISC_${name}_INCLUDE OR NOT AISC_${name}_LIBRARY)
      aisc_missing(aisc_${library} "${library} was not found: header ${library}.h: \
${AISC_${name}_INCLUDE}, library: ${AISC_${name}_LIBRARY} (Debian and Ubuntu: lib${library}-dev). \
`./aisc setup` installs what is missing.")
      continue()
    endif()
    add_library(aisc_${library} INTERFACE)
    target_include_directories(aisc_${library} SYSTEM INTERFACE "${AISC_${name}_INCLUDE}")
    target_link_libraries(aisc_${library} INTERFACE "${AISC_${name}_LIBRARY}")
  endforeach()
endif()

# Google Benchmark and GoogleTest only where they are used.
find_package(benchmark CONFIG QUIET)
if(AISC_TESTS)
  if(NOT AISC_HEADERS)
    find_package(GTest QUIET)
    if(NOT GTest_FOUND)
      message(FATAL_ERROR "GTest was not found (Debian and Ubuntu: libgtest-dev). `./aisc setup` \
installs what is missing; -DAISC_TESTS=OFF does without tests.")
    endif()
  endif()
  include(GoogleTest)
endif()

# oneDNN: 2.x (Debian 12) or 3.x; the header's version is told at the end of configuration.
set(AISC_HAS_ONEDNN ${AISC_ONEDNN})
if(AISC_ONEDNN)
  find_path(AISC_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
  find_library(AISC_DNNL_LIBRARY NAMES dnnl)
  if(NOT AISC_DNNL_INCLUDE OR NOT AISC_DNNL_LIBRARY)
    aisc_missing(aisc_onednn "oneDNN was not found: header oneapi/dnnl/dnnl.hpp: \
${AISC_DNNL_INCLUDE}, library dnnl: ${AISC_DNNL_LIBRARY} (Debian and Ubuntu: libdnnl-dev). \
`./aisc setup` installs what is missing; -DAISC_ONEDNN=OFF does without, at a fraction of the \
speed.")
  endif()
endif()
if(AISC_ONEDNN AND NOT TARGET aisc_onednn)
  file(STRINGS "${AISC_DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h" lines
    REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]*" "\\1;" numbers "${lines}")
  list(FILTER numbers INCLUDE REGEX "[0-9]")
  list(JOIN numbers "." AISC_ONEDNN_VERSION)
  if(NOT AISC_ONEDNN_VERSION MATCHES "^[23]\\.")
    message(FATAL_ERROR
      "oneDNN ${AISC_ONEDNN_VERSION} in ${AISC_DNNL_INCLUDE}: 2.x or 3.x is needed.")
  endif()
  message(STATUS "oneDNN ${AISC_ONEDNN_VERSION}: ${AISC_DNNL_LIBRARY}")
  add_library(aisc_onednn INTERFACE)
  target_include_directories(aisc_onednn SYSTEM INTERFACE "${AISC_DNNL_INCLUDE}")
  target_link_libraries(aisc_onednn INTERFACE "${AISC_DNNL_LIBRARY}")
endif()

# CUDA: aisc_cuda is the runtime with cuBLASLt, real or emulated; sources in folders cuda/ and nccl/
# see nothing else of it.
set(AISC_HAS_CUDA OFF)
if(AISC_CUDA STREQUAL "EMULATED")
  set(AISC_HAS_CUDA ON)
  add_library(aisc_cuda INTERFACE)
  target_include_directories(aisc_cuda SYSTEM BEFORE INTERFACE "${AISC_ROOT}/emulated_gpu/include")
  target_link_libraries(aisc_cuda INTERFACE aisc_emulated_gpu)
elseif(AISC_CUDA)
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND)
    message(FATAL_ERROR "AISC_CUDA is ON, but no CUDA toolkit was found: looked for nvcc on the "
      "PATH and in /usr/local/cuda; -DCUDAToolkit_ROOT=<folder> names another place.")
  endif()
  if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  enable_language(CUDA)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # an older CMake with a newer nvcc
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  # Toolkits without cuBLAS: NVIDIA's Python packages have it, under names for running only.
  if(NOT TARGET CUDA::cublasLt)
    find_path(AISC_CUBLASLT_INCLUDE cublasLt.h)
    find_library(AISC_CUBLASLT_LIBRARY
      NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12)
    if(NOT AISC_CUBLASLT_INCLUDE OR NOT AISC_CUBLASLT_LIBRARY)
      message(FATAL_ERROR "cuBLASLt was not found: header: ${AISC_CUBLASLT_INCLUDE}, library: "
        "${AISC_CUBLASLT_LIBRARY}; -DCMAKE_PREFIX_PATH=<folder> names where it is.")
    endif()
    add_library(CUDA::cublasLt INTERFACE IMPORTED GLOBAL)
    target_include_directories(CUDA::cublasLt SYSTEM INTERFACE "${AISC_CUBLASLT_INCLUDE}")
    target_link_libraries(CUDA::cublasLt INTERFACE "${AISC_CUBLASLT_LIBRARY}")
  endif()
  set(AISC_HAS_CUDA ON)
  add_library(aisc_cuda INTERFACE)
  target_include_directories(aisc_cuda INTERFACE "${AISC_ROOT}/common/core/cuda/native")
  target_link_libraries(aisc_cuda INTERFACE CUDA::cudart CUDA::cublasLt)
endif()

set(AISC_HAS_MPI OFF)
if(AISC_MPI AND EXISTS "${AISC_ROOT}/common/comm/mpi")
  set(MPI_CXX_SKIP_MPICXX ON)  # the C++ bindings that MPI-3 has dropped
  find_package(MPI QUIET COMPONENTS CXX)
  set(AISC_HAS_MPI ${MPI_CXX_FOUND})
endif()
if(AISC_HAS_MPI)
  add_library(aisc_mpi INTERFACE)
  target_link_libraries(aisc_mpi INTERFACE MPI::MPI_CXX)
endif()
set(AISC_HAS_NCCL OFF)
if(AISC_NCCL AND AISC_CUDA STREQUAL "EMULATED")
  set(AISC_HAS_NCCL ON)
  add_library(aisc_nccl INTERFACE)
  target_link_libraries(aisc_nccl INTERFACE aisc_cuda)
elseif(AISC_NCCL AND AISC_HAS_CUDA)
  find_path(AISC_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(AISC_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(AISC_NCCL_INCLUDE AND AISC_NCCL_LIBRARY)
    set(AISC_HAS_NCCL ON)
    add_library(aisc_nccl INTERFACE)
    target_include_directories(aisc_nccl SYSTEM INTERFACE "${AISC_NCCL_INCLUDE}")
    target_link_libraries(aisc_nccl INTERFACE "${AISC_NCCL_LIBRARY}" aisc_cuda)
  endif()
endif()
