# Everything a CMakeLists.txt of this project needs, in one include. The root includes it first; a
# module built alone includes it through module.cmake. The only targets made here are aisc_settings
# and the packages.
include_guard(GLOBAL)
get_filename_component(AISC_ROOT "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)

include("${CMAKE_CURRENT_LIST_DIR}/settings.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/packages.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/targets.cmake")
