//===- Pause.h - tell the processor that a thread spins ---------*- C++ -*-===//
#ifndef TCC_SUPPORT_PAUSE_H
#define TCC_SUPPORT_PAUSE_H

namespace tcc {

/// One turn of a loop that polls memory. The instruction leaves the core's units to its other thread and saves power;
/// a processor without one polls at full speed, which is right, too.
inline void pauseInSpin() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

} // namespace tcc

#endif // TCC_SUPPORT_PAUSE_H
