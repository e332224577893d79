//===- Numbers.h - roundings that x86 has no instruction for -------------===//
#ifndef TCC_TEST_EMULATION_PTX_NUMBERS_H
#define TCC_TEST_EMULATION_PTX_NUMBERS_H

#include <cstdint>

namespace tcc::emulation::ptx {

/// `value` in a format of 16 bits with `fraction` explicit bits (10: f16, 7: bf16), rounded once: to nearest even, or
/// toward zero. NaN becomes 0x7fff.
uint16_t roundTo16(double value, unsigned fraction, bool towardZero);

/// a · b + c rounded once to such a format; the operands are numbers of it.
uint16_t fusedTo16(double a, double b, double c, unsigned fraction);

/// A double as f32, rounded toward zero.
float roundToF32TowardZero(double value);

} // namespace tcc::emulation::ptx

#endif // TCC_TEST_EMULATION_PTX_NUMBERS_H
