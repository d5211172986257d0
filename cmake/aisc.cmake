# Everything a CMakeLists.txt of this project needs, in one include. The root includes it first; a
# module built alone includes it through module.cmake. The only targets made here are aisc_settings
# and the packages.
include_guard(GLOBAL)
get_filename_component(AISC_ROOT "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)

foreach(file IN ITEMS settings packages targets modules tests)
  include("${CMAKE_CURRENT_LIST_DIR}/${file}.cmake")
endforeach()
