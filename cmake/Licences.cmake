# Licences of what installed files contain: linked statically, made of headers, or bundled. Debian's packages bring them as
# /usr/share/doc/PACKAGE/copyright; elsewhere a distributor has to add them, and a standalone build is refused.
function(tcc_licences component)
  foreach(package ${ARGN})
    set(file /usr/share/doc/${package}/copyright)
    if(EXISTS ${file})
      install(FILES ${file} DESTINATION ${CMAKE_INSTALL_DOCDIR}/licences/${component} RENAME ${package}.txt COMPONENT ${component})
    elseif(TCC_STANDALONE)
      message(FATAL_ERROR "${file} is missing: a standalone build contains ${package} and must come with its licence")
    endif()
  endforeach()
endfunction()

# Headers that become code.
set(tcc_header_packages libcli11-dev libfmt-dev libtomlplusplus-dev nlohmann-json3-dev)
tcc_licences(runtime ${tcc_header_packages} ${TCC_BUNDLED_PACKAGES})
if(TCC_BUILD_COMPILER)
  tcc_licences(compiler ${tcc_header_packages} ${TCC_BUNDLED_PACKAGES} libllvm22 libmlir-22 liblld-22)
  # ONNX is built from its source distribution; the wheel of the same version, which tests use, has the text.
  file(GLOB onnx_licences ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/onnx-*.dist-info/licenses/LICENSE)
  if(onnx_licences)
    install(FILES ${onnx_licences} DESTINATION ${CMAKE_INSTALL_DOCDIR}/licences/compiler RENAME onnx.txt COMPONENT compiler)
  elseif(TCC_STANDALONE)
    message(FATAL_ERROR "no licence of onnx in .venv: run tools/setup.sh")
  endif()
endif()
