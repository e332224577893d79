# libtrun.a: libtrun and all archives it is made of as one object, in which trun_* alone is global, so that no other symbol meets
# one of the program. A program links it with the shared libraries that libtrun.so needs.

# tcc_archives(TARGET OUT): the archives that a target links, ours and those of ONNX, by their targets.
function(tcc_archives target out)
  set(found)
  set(waiting ${target})
  while(waiting)
    list(POP_FRONT waiting one)
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(linked ${one} ${property})
      foreach(item ${linked})
        string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" item "${item}")
        if(NOT TARGET "${item}" OR item IN_LIST found)
          continue()
        endif()
        get_target_property(type ${item} TYPE)
        if(type STREQUAL "STATIC_LIBRARY")
          list(APPEND found ${item})
          list(APPEND waiting ${item})
        endif()
      endforeach()
    endforeach()
  endwhile()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

tcc_archives(libtrun parts)
set(files)
foreach(part ${parts})
  list(APPEND files $<TARGET_FILE:${part}>)
endforeach()
set(static_folder ${CMAKE_BINARY_DIR}/static)
file(MAKE_DIRECTORY ${static_folder})
# Groups are resolved here: a symbol of one that is local afterwards must not be dropped for a symbol of the program. Unique
# symbols (variables of inline functions) become local only if they are weak first.
add_custom_command(
  OUTPUT ${static_folder}/libtrun.a ${static_folder}/tccStatic.cmake
  COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o trun.o $<TARGET_OBJECTS:libtrun> --start-group ${files} --end-group
  COMMAND ${CMAKE_NM} --defined-only trun.o | awk "$2 == \"u\" { print $3 }" > unique
  COMMAND ${CMAKE_OBJCOPY} --weaken-symbols=unique trun.o
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=trun_* trun.o
  COMMAND ${CMAKE_COMMAND} -E rm -f libtrun.a
  COMMAND ${CMAKE_AR} qcs libtrun.a trun.o
  COMMAND ${CMAKE_COMMAND} -E rm trun.o unique
  COMMAND ${CMAKE_COMMAND} -D READELF=${CMAKE_READELF} -D LIBRARY=$<TARGET_FILE:libtrun> -D OUT=tccStatic.cmake
          -P ${CMAKE_SOURCE_DIR}/cmake/package/StaticNeeds.cmake
  WORKING_DIRECTORY ${static_folder}
  DEPENDS libtrun $<TARGET_OBJECTS:libtrun> ${parts} ${CMAKE_SOURCE_DIR}/cmake/package/StaticNeeds.cmake
  COMMAND_EXPAND_LISTS VERBATIM COMMENT "Making libtrun.a")
add_custom_target(libtrun_static ALL DEPENDS ${static_folder}/libtrun.a)
install(FILES ${static_folder}/libtrun.a DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(FILES ${static_folder}/tccStatic.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tcc COMPONENT development)
