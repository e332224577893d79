//===- ProcessResources.h - what this process holds -------------*- C++ -*-===//
#ifndef TCC_TEST_SUPPORT_PROCESSRESOURCES_H
#define TCC_TEST_SUPPORT_PROCESSRESOURCES_H

#include <filesystem>
#include <fstream>
#include <iterator>
#include <malloc.h>
#include <ostream>
#include <string>

namespace tcc::test {

struct ProcessResources {
  int64_t descriptors = 0, threads = 0, mappings = 0;
  int64_t heapBytes = 0; ///< that malloc has given out

  static ProcessResources now() {
    ProcessResources result;
    const struct mallinfo2 heap = ::mallinfo2();
    result.heapBytes = static_cast<int64_t>(heap.uordblks + heap.hblkhd);
    result.descriptors = entriesOf("/proc/self/fd");
    result.threads = entriesOf("/proc/self/task");
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      ++result.mappings;
    return result;
  }

  friend std::ostream &operator<<(std::ostream &out, const ProcessResources &r) {
    return out << r.descriptors << " descriptors, " << r.threads << " threads, " << r.mappings << " mappings, "
               << r.heapBytes << " bytes of heap";
  }

private:
  static int64_t entriesOf(const char *folder) {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  }
};

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_PROCESSRESOURCES_H
