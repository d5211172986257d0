# The packages of a machine without them, from the folder AISC_HEADERS that tools/authors/gpu_check --pack
# filled elsewhere: include/ with headers that need no library, lib/libutf8proc.a, and the sources
# of GoogleTest. The names are those that packages.cmake gives what it finds.
foreach(file IN ITEMS include/fmt/format.h include/nlohmann/json.hpp include/CLI/CLI.hpp
    include/xxhash.h include/utf8proc.h lib/libutf8proc.a googletest/CMakeLists.txt)
  if(NOT EXISTS "${AISC_HEADERS}/${file}")
    message(FATAL_ERROR "AISC_HEADERS=${AISC_HEADERS}: there is no ${file} in it; "
      "`tools/authors/gpu_check --pack <folder>` fills such a folder.")
  endif()
endforeach()

foreach(name IN ITEMS fmt::fmt nlohmann_json::nlohmann_json CLI11::CLI11 aisc_utf8proc aisc_xxhash)
  add_library(${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${name} SYSTEM INTERFACE "${AISC_HEADERS}/include")
endforeach()
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
target_compile_definitions(aisc_xxhash INTERFACE XXH_INLINE_ALL)
target_compile_definitions(aisc_utf8proc INTERFACE UTF8PROC_STATIC)
target_link_libraries(aisc_utf8proc INTERFACE "${AISC_HEADERS}/lib/libutf8proc.a")

if(AISC_TESTS)
  set(INSTALL_GTEST OFF CACHE BOOL "")
  set(gtest_force_shared_crt ON CACHE BOOL "")
  add_subdirectory("${AISC_HEADERS}/googletest" "${CMAKE_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL)
endif()
