# Compiles for ARM64 Linux on another machine, by Debian's cross compiler (g++-aarch64-linux-gnu):
#
#   cmake -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DAISC_NATIVE=OFF -DCMAKE_SYSROOT=<folder> ...
#
# CMAKE_SYSROOT holds the libraries of an ARM64 system under usr/, as tools/authors/try_arm64 makes
# it. Without it the compiler's own are all there is: enough for common/, with AISC_HEADERS.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# Programs are this machine's (Python, ninja), what is linked is not.
if(NOT CMAKE_SYSROOT)
  set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# This machine's mpicxx would name this machine's libraries: those of the root are named here.
set(openmpi "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/openmpi")
if(CMAKE_SYSROOT AND EXISTS "${openmpi}/lib/libmpi.so")
  set(MPI_CXX_COMPILER_INCLUDE_DIRS "${openmpi}/include" CACHE STRING "")
  set(MPI_CXX_LIB_NAMES mpi CACHE STRING "")
  set(MPI_mpi_LIBRARY "${openmpi}/lib/libmpi.so" CACHE FILEPATH "")
  set(MPIEXEC_EXECUTABLE "${CMAKE_SYSROOT}/usr/bin/mpirun.openmpi" CACHE FILEPATH "")
endif()
