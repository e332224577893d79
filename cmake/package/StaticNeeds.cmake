# cmake -D READELF=… -D LIBRARY=libtrun.so -D OUT=tccStatic.cmake -P StaticNeeds.cmake: writes the target tcc::trun_static, which
# links the shared libraries that libtrun.so needs, of the versions that it was built with.
execute_process(COMMAND ${READELF} -d ${LIBRARY} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\\(NEEDED\\)[^\n]*\\[[^]\n]*\\]" lines "${dynamic}")
set(needs)
foreach(line ${lines})
  string(REGEX REPLACE ".*\\[(.*)\\]" "\\1" name "${line}")
  # The compiler names the loader and its own libraries itself.
  if(NOT name MATCHES "^(ld-linux.*|libc\\.so\\.6|libgcc_s\\.so\\.1)$")
    list(APPEND needs "-l:${name}")
  endif()
endforeach()
if(NOT needs)
  message(FATAL_ERROR "${LIBRARY} needs no library")
endif()
file(WRITE ${OUT} "# libtrun.a, with the shared libraries that it needs.
add_library(tcc::trun_static STATIC IMPORTED)
get_filename_component(tcc_folder \"\${CMAKE_CURRENT_LIST_DIR}/../..\" ABSOLUTE)
set_target_properties(tcc::trun_static PROPERTIES
  IMPORTED_LOCATION \"\${tcc_folder}/libtrun.a\"
  IMPORTED_LINK_INTERFACE_LANGUAGES C
  INTERFACE_LINK_LIBRARIES \"${needs}\")
get_target_property(tcc_headers tcc::trun INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(tcc::trun_static INTERFACE \"\${tcc_headers}\")
")
