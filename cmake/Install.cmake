# `cmake --install BUILD --prefix P`: docs/guide/install.md lists what P holds. Components: `runtime` (libtrun, trun, their
# plug-ins), `development` (headers, packages of CMake and pkg-config), `compiler` (tcc, tcc-plan), `tools` (tcc-opt).
include(CMakePackageConfigHelpers)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(tcc_plugin_folder ${CMAKE_INSTALL_LIBDIR}/tcc)
set_target_properties(libtrun PROPERTIES INSTALL_RPATH $ORIGIN/tcc)
install(TARGETS libtrun EXPORT tcc LIBRARY COMPONENT runtime NAMELINK_COMPONENT development)
if(TCC_STANDALONE)
  set_target_properties(trun PROPERTIES INSTALL_RPATH $ORIGIN/${TCC_PLUGINS_FROM_PROGRAMS}/..)
endif()
install(TARGETS trun RUNTIME COMPONENT runtime)
if(NOT TCC_STANDALONE)
  include(cmake/StaticLibrary.cmake)
endif()
add_custom_target(plugins) # of the component runtime, as far as this machine can build them
foreach(plugin trun-arrow trun-mpi)
  if(TARGET ${plugin})
    add_dependencies(plugins ${plugin})
    # Pyarrow in the same environment, where this is a wheel; else that of the build, which is no system folder.
    set(run_path $ORIGIN $ORIGIN/../../../pyarrow)
    get_target_property(build_path ${plugin} BUILD_RPATH)
    if(build_path AND NOT TCC_STANDALONE)
      list(APPEND run_path ${build_path})
    endif()
    set_target_properties(${plugin} PROPERTIES INSTALL_RPATH "${run_path}")
    install(TARGETS ${plugin} LIBRARY DESTINATION ${tcc_plugin_folder} COMPONENT runtime)
  endif()
endforeach()
install(TARGETS tcc-plan RUNTIME COMPONENT compiler)
if(TCC_BUILD_COMPILER)
  install(TARGETS tcc RUNTIME COMPONENT compiler)
  install(TARGETS tcc-opt RUNTIME COMPONENT tools)
endif()

install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/trun TYPE INCLUDE COMPONENT development)
set(cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tcc)
install(EXPORT tcc NAMESPACE tcc:: FILE tccTargets.cmake DESTINATION ${cmake_folder} COMPONENT development)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/package/tccConfig.cmake.in ${CMAKE_BINARY_DIR}/package/tccConfig.cmake
                              INSTALL_DESTINATION ${cmake_folder} PATH_VARS CMAKE_INSTALL_BINDIR)
# Before 1.0 a minor version may change the interface of C++ (trun.hpp); that of C keeps its symbols' version.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/tccConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/tccConfig.cmake ${CMAKE_BINARY_DIR}/package/tccConfigVersion.cmake
        DESTINATION ${cmake_folder} COMPONENT development)
file(RELATIVE_PATH TCC_PREFIX_FROM_PKGCONFIG ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_SOURCE_DIR}/cmake/package/trun.pc.in ${CMAKE_BINARY_DIR}/package/trun.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/trun.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# Man pages and completions: made of what the programs themselves say of their options.
set(manual_folder ${CMAKE_BINARY_DIR}/manual)
set(manual_programs trun tcc-plan)
if(TCC_BUILD_COMPILER)
  list(APPEND manual_programs tcc)
endif()
list(TRANSFORM manual_programs REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE manual_files)
add_custom_command(
  OUTPUT ${manual_folder}/made
  COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tools/manual.py ${manual_folder} --version ${PROJECT_VERSION}
          ${manual_files}
  DEPENDS ${manual_programs} ${CMAKE_SOURCE_DIR}/tools/manual.py
  COMMENT "Making man pages and completions" VERBATIM)
add_custom_target(manual ALL DEPENDS ${manual_folder}/made)
foreach(program ${manual_programs})
  set(component compiler)
  if(program STREQUAL trun)
    set(component runtime)
  endif()
  install(FILES ${manual_folder}/man1/${program}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
  install(FILES ${manual_folder}/bash/${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          COMPONENT ${component})
  install(FILES ${manual_folder}/zsh/_${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
          COMPONENT ${component})
  install(FILES ${manual_folder}/fish/${program}.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
          COMPONENT ${component})
endforeach()

include(cmake/Licences.cmake)
include(cmake/Debian.cmake)
