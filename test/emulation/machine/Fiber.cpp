//===- Fiber.cpp - stacks to switch between ------------------------------===//
#include "test/emulation/machine/Fiber.h"

#include <algorithm>
#include <new>
#include <sys/mman.h>

#ifndef __x86_64__
#error "the emulator's fibers are written for x86-64"
#endif

asm(R"(
.text
.globl tccEmulationSwitch
.type tccEmulationSwitch, @function
tccEmulationSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tccEmulationSwitch, .-tccEmulationSwitch
)");

namespace tcc::emulation {

namespace {
constexpr uint64_t kPage = 4096;
}

FiberStacks::~FiberStacks() {
  if (base)
    ::munmap(base, count * bytes);
}

void FiberStacks::reserve(uint64_t wantedCount, uint64_t wantedBytes) {
  wantedBytes = (wantedBytes + kPage - 1) / kPage * kPage + kPage;
  if (wantedCount <= count && wantedBytes <= bytes)
    return;
  if (base)
    ::munmap(base, count * bytes);
  count = std::max(count, wantedCount);
  bytes = std::max(bytes, wantedBytes);
  void *at = ::mmap(nullptr, count * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    throw std::bad_alloc();
  base = static_cast<std::byte *>(at);
  for (uint64_t i = 0; i < count; ++i)
    ::mprotect(base + i * bytes, kPage, PROT_NONE);
}

void *FiberStacks::start(uint64_t index, void (*begin)()) {
  // The first switch pops six registers and returns into `begin`, with the stack as after a call.
  auto **top = reinterpret_cast<void **>(base + (index + 1) * bytes - 64);
  top[-1] = nullptr;
  top[-2] = reinterpret_cast<void *>(begin);
  for (int i = 3; i <= 8; ++i)
    top[-i] = nullptr;
  return &top[-8];
}

} // namespace tcc::emulation
