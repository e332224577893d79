//===- BytesText.h - sizes in bytes as text ---------------------*- C++ -*-===//
#ifndef TCC_SUPPORT_BYTESTEXT_H
#define TCC_SUPPORT_BYTESTEXT_H

#include <cstdint>
#include <cstdio>
#include <string>

namespace tcc {

/// "512 B", "1.5 KiB", "64.0 MiB", "5.00 GiB": three or four digits. Units above GiB are not used for memory.
inline std::string bytesText(uint64_t bytes) {
  static constexpr const char *kUnits[] = {"KiB", "MiB", "GiB"};
  if (bytes < 1024)
    return std::to_string(bytes) + " B";
  double value = double(bytes) / 1024;
  int unit = 0;
  for (; unit < 2 && value >= 1023.95; ++unit) // it would be rounded to 1024.0
    value /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 2 ? "%.2f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

} // namespace tcc

#endif // TCC_SUPPORT_BYTESTEXT_H
