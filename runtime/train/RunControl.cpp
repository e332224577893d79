//===- RunControl.cpp - ask a run to end, or to write a checkpoint ---------===//
#include "runtime/train/RunControl.h"

#include <algorithm>
#include <cstring>

void tcc::runtime::RunControl::setLastCheckpoint(const std::string &path) noexcept {
  const int next = 1 - current;
  const size_t length = std::min(path.size(), sizeof(paths[next]) - 1);
  std::memcpy(paths[next], path.data(), length);
  paths[next][length] = 0;
  current = next;
}
