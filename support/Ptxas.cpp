//===- Ptxas.cpp - NVIDIA's assembler, where it is installed -------------===//
#include "support/Ptxas.h"
#include "support/Advice.h"
#include "support/MappedFile.h"
#include "support/OwnFiles.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern char **environ;

namespace tcc {

namespace {
namespace fs = std::filesystem;

std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

bool isProgram(const fs::path &path) {
  std::error_code code;
  return fs::is_regular_file(path, code) && ::access(path.c_str(), X_OK) == 0;
}

std::vector<fs::path> foldersOfPath() {
  std::vector<fs::path> folders;
  std::stringstream list(variable("PATH"));
  for (std::string folder; std::getline(list, folder, ':');)
    if (!folder.empty())
      folders.emplace_back(folder);
  return folders;
}

/// Entries of a folder whose names begin with `prefix`, in descending order: the newest version first.
std::vector<fs::path> entriesOf(const fs::path &folder, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (at->path().filename().string().starts_with(prefix))
      found.push_back(at->path());
  std::sort(found.rbegin(), found.rend());
  return found;
}

/// Where pip puts ptxas in an environment: nvidia/cu13/bin, of CUDA 12 nvidia/cuda_nvcc/bin.
void addWheels(const fs::path &environment, std::vector<fs::path> &places) {
  for (const fs::path &python : entriesOf(environment / "lib", "python3"))
    for (const fs::path &package : entriesOf(python / "site-packages" / "nvidia", "cu"))
      places.push_back(package / "bin" / "ptxas");
}

std::vector<fs::path> candidates() {
  std::vector<fs::path> places;
  const std::vector<fs::path> folders = foldersOfPath();
  for (const fs::path &folder : folders)
    places.push_back(folder / "ptxas");
  const std::string home = variable("CUDA_HOME");
  places.push_back(fs::path(home.empty() ? "/usr/local/cuda" : home) / "bin" / "ptxas");
  if (std::string environment = variable("VIRTUAL_ENV"); !environment.empty())
    addWheels(environment, places);
  for (const fs::path &folder : folders)
    if (isProgram(folder / "python3")) {
      addWheels(folder.parent_path(), places);
      break;
    }
  return places;
}

/// Runs a program whose output goes to a file. Its exit status, or -1 where it does not run.
int runInto(std::vector<std::string> words, const std::string &output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_TRUNC, 0);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const bool started = ::posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  while (started && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return started && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// "Cuda compilation tools, release 13.0, V13.0.88" → "ptxas 13.0.88".
std::string versionIn(const std::string &text) {
  const size_t at = text.find(", V");
  if (at == std::string::npos)
    return "";
  const size_t end = text.find_first_not_of("0123456789.", at + 3);
  return "ptxas " + text.substr(at + 3, end == std::string::npos ? end : end - at - 3);
}
} // namespace

std::optional<Ptxas> Ptxas::find() {
  const TemporaryFolder folder("tcc-ptxas");
  if (!folder.write("version", "").ok())
    return std::nullopt;
  const std::string output = folder.path("version");
  for (const fs::path &place : candidates()) {
    if (!isProgram(place) || runInto({place.string(), "--version"}, output) != 0)
      continue;
    Expected<std::string> text = readFile(output);
    if (std::string version = text ? versionIn(*text) : ""; !version.empty())
      return Ptxas{place.string(), version};
  }
  return std::nullopt;
}

Expected<std::string> Ptxas::assemble(const std::string &ptx, const std::string &architecture) const {
  const TemporaryFolder folder("tcc-ptxas");
  const std::string source = folder.path("code.ptx"), code = folder.path("code.cubin"), said = folder.path("said");
  if (!folder.write("code.ptx", ptx).ok() || !folder.write("said", "").ok())
    return error("no temporary file can be written for {}; set TMPDIR to a folder with {} bytes, or leave machine code "
                 "out: {}",
                 version, ptx.size(), advice::set("compiler.cubins", "none"));
  const int status = runInto({path, "-arch=" + architecture, source, "-o", code}, said);
  Expected<std::string> assembled = status == 0 ? readFile(code) : error("exit status {}", status);
  if (assembled && !assembled->empty())
    return assembled;
  // The first line of its output names the error.
  Expected<std::string> text = readFile(said);
  const std::string first = text ? text->substr(0, std::min<size_t>(text->find('\n'), 500)) : "";
  return error("{} ({}) does not assemble the kernels for {}: {}; leave machine code out: {}", path, version,
               architecture, first.empty() ? "exit status " + std::to_string(status) : first,
               advice::set("compiler.cubins", "none"));
}

} // namespace tcc
