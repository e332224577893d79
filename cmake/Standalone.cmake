# -DTCC_STANDALONE=ON: programs and libtrun for Linux systems that have glibc 2.34 or newer and none of our libraries. Archives
# are linked in where that drops dependencies of the shared libraries (libarchive's end in 31 MB of ICU). Debian makes most
# archives for programs alone, so that libtrun cannot contain them: those libraries are bundled in lib/tcc.

function(tcc_find_archive variable name)
  find_library(${variable} NAMES lib${name}.a REQUIRED)
endfunction()
tcc_find_archive(XXHASH_LIBRARY xxhash)
tcc_find_archive(ZSTD_LIBRARY zstd)
tcc_find_archive(LibArchive_LIBRARY archive)
tcc_find_archive(TCC_LZMA_LIBRARY lzma)
find_library(TCC_BZ2_LIBRARY bz2 REQUIRED)
set(TCC_ARCHIVE_NEEDS ${TCC_BZ2_LIBRARY} ${TCC_LZMA_LIBRARY} ${ZSTD_LIBRARY} nettle)

# Debian has no archive of fmt, but its headers hold all of its code.
add_library(TccFmt STATIC ${CMAKE_CURRENT_LIST_DIR}/package/Fmt.cpp)
target_compile_definitions(TccFmt PUBLIC FMT_SHARED)
add_library(fmt::fmt ALIAS TccFmt)

# LLVM would ask for glibc 2.36, where arc4random is; ours asks the kernel. libarchive's writer of xar would ask for libxml2.
add_library(TccStandalone STATIC ${CMAKE_CURRENT_LIST_DIR}/package/Arc4random.c ${CMAKE_CURRENT_LIST_DIR}/package/NoXar.c)
link_libraries($<BUILD_INTERFACE:$<$<NOT:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,STATIC_LIBRARY>>:TccStandalone>>)

# Code that runs once is a third smaller than at -O1, and the linker leaves out functions that nothing calls.
set(CMAKE_CXX_FLAGS_RELEASE "-Os")
add_compile_options(-ffunction-sections -fdata-sections)

# Symbols of archives stay inside: a process may have other versions of the same libraries, as Python's modules bring them.
# Unlike DT_RUNPATH, DT_RPATH also serves what a bundled library needs itself.
add_link_options(-Wl,--exclude-libs,ALL -Wl,--gc-sections -Wl,--disable-new-dtags -s)
# GCC 12's C++ library is newer than that of systems with glibc 2.34. A plug-in shares the system's with the libraries it opens.
add_link_options($<$<NOT:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,MODULE_LIBRARY>>:-static-libstdc++>)

set(TCC_BUNDLED_PACKAGES libarchive13 libbz2-1.0 libdnnl2 libgomp1 libjpeg62-turbo liblzma5 libnettle8 libpng16-16
    libprotobuf32 libstdc++6 libxxhash0 libzstd1 ocl-icd-libopencl1 zlib1g)
find_library(DNNL_LIBRARY dnnl REQUIRED)
foreach(soname libbz2.so.1.0 libdnnl.so.2 libgomp.so.1 libjpeg.so.62 libnettle.so.8 libOpenCL.so.1 libpng16.so.16
        libprotobuf.so.32 libz.so.1)
  get_filename_component(folder ${DNNL_LIBRARY} DIRECTORY)
  file(REAL_PATH ${folder}/${soname} library)
  install(FILES ${library} DESTINATION ${CMAKE_INSTALL_LIBDIR}/tcc RENAME ${soname} COMPONENT runtime)
endforeach()

# LLVM's targets name its shared libraries: the archives are given as files, of which the linker takes what tcc uses. lld starts
# every target of LLVM, which would be half of tcc's size: those that we compile for none of are left out, by empty functions.
if(TCC_BUILD_COMPILER)
  file(GLOB TCC_LLVM_LIBRARIES /usr/lib/llvm-22/lib/libMLIR*.a /usr/lib/llvm-22/lib/libLLVM*.a)
  file(STRINGS /usr/lib/llvm-22/include/llvm/Config/Targets.def targets REGEX "^LLVM_TARGET\\(")
  set(text "")
  foreach(line ${targets})
    string(REGEX REPLACE "LLVM_TARGET\\((.*)\\)" "\\1" target ${line})
    if(NOT target MATCHES "^(X86|NVPTX)$")
      foreach(part TargetInfo Target TargetMC AsmPrinter AsmParser)
        string(APPEND text "void LLVMInitialize${target}${part}(void) {}\n")
      endforeach()
    endif()
  endforeach()
  file(CONFIGURE OUTPUT package/NoTargets.c CONTENT "${text}")
  target_sources(TccStandalone PRIVATE ${CMAKE_BINARY_DIR}/package/NoTargets.c ${CMAKE_CURRENT_LIST_DIR}/package/NoPolly.c)
endif()
