//===- Processors.h - processors that this process may use ------*- C++ -*-===//
#ifndef TCC_SUPPORT_PROCESSORS_H
#define TCC_SUPPORT_PROCESSORS_H

namespace tcc {

/// The processors that the scheduler may give to this process, at least 1.
unsigned usableProcessors();

} // namespace tcc

#endif // TCC_SUPPORT_PROCESSORS_H
