//===- InputFolder.h - a fuzzer's input as files -------------------------===//
//
// The readers under test take paths, as users give them. A process has one folder for all its inputs, on a file system
// in memory where there is one, and removes it when it ends.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_FUZZ_INPUTFOLDER_H
#define TCC_TEST_FUZZ_INPUTFOLDER_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

namespace tcc::fuzz {

class InputFolder {
public:
  InputFolder() {
    std::string name =
        (std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp") + std::string("/tcc-fuzz-XXXXXX");
    if (!mkdtemp(name.data()))
      std::abort();
    path = name;
  }
  ~InputFolder() {
    std::error_code code;
    std::filesystem::remove_all(path, code);
  }

  /// Writes (or replaces) a file and returns its path; `name` may lead into folders of its own.
  std::string write(const std::string &name, std::span<const uint8_t> bytes) const {
    std::string file = path + "/" + name;
    std::error_code code;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path(), code);
    FILE *out = std::fopen(file.c_str(), "wb");
    if (!out)
      std::abort();
    std::fwrite(bytes.data(), 1, bytes.size(), out);
    std::fclose(out);
    return file;
  }

  /// Removes everything that was written.
  void clear() const {
    std::error_code code;
    for (const auto &entry : std::filesystem::directory_iterator(path, code))
      std::filesystem::remove_all(entry.path(), code);
  }

  std::string path;
};

} // namespace tcc::fuzz

#endif // TCC_TEST_FUZZ_INPUTFOLDER_H
