# Run paths of installed files. They are relative to the file, so that an installation may be moved. Libraries that are linked
# from folders outside the system's, as LLVM's and Arrow's, keep the paths of the build machine, but for standalone builds.
file(RELATIVE_PATH TCC_PLUGINS_FROM_PROGRAMS ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/tcc)
if(NOT TCC_STANDALONE)
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
endif()
set(CMAKE_INSTALL_RPATH $ORIGIN/${TCC_PLUGINS_FROM_PROGRAMS})
