//===- SharedLibrary.cpp - libcuda.so.1 ----------------------------------===//
//
// All of the library is TccStandIn; a shared library needs a source of its own.
//
//===----------------------------------------------------------------------===//
