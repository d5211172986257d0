# The second line of every module's CMakeLists.txt. Inside the whole house it finds everything made;
# when the module is built alone (cmake -S 11_gpt_3d -B build) it brings in the floors below it.
include("${CMAKE_CURRENT_LIST_DIR}/aisc.cmake")
if(NOT TARGET aisc_core)
  if(AISC_CUDA STREQUAL "EMULATED")
    add_subdirectory("${AISC_ROOT}/tests/emulated_gpu" "${CMAKE_BINARY_DIR}/emulated_gpu")
  endif()
  add_subdirectory("${AISC_ROOT}/common" "${CMAKE_BINARY_DIR}/common")
  add_subdirectory("${AISC_ROOT}/formats" "${CMAKE_BINARY_DIR}/formats")
  add_subdirectory("${AISC_ROOT}/app" "${CMAKE_BINARY_DIR}/app")
  add_subdirectory("${AISC_ROOT}/bench" "${CMAKE_BINARY_DIR}/bench" EXCLUDE_FROM_ALL)
endif()
