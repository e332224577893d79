# `cpack --config build-standalone/CPackConfig.cmake`: a Debian package. Debian's own package tcc, a C compiler, has /usr/bin/tcc and
# tcc(1): ours is called tcc-train and has all of its files in /opt/tcc-train.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tcc-train)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "the authors of tcc <tcc-train@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "train ONNX models by plans that are compiled ahead of time")
set(CPACK_PACKAGING_INSTALL_PREFIX /opt/tcc-train)
set(CPACK_COMPONENTS_ALL runtime development compiler)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# What a standalone build needs. Plug-ins that need more (MPI, Arrow) are opened only where it is there.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.34), libgcc-s1, libstdc++6 (>= 11)")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS openmpi-bin)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
