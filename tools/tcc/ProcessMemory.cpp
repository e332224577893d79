//===- ProcessMemory.cpp - memory of trun beside the arenas ---------------===//
//
// The only numbers of a report that do not follow from the plan: the memory of shared libraries, heap and primitives is
// measured, in the program that will run the plan.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/ProcessMemory.h"

#include "support/Json.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace tcc::report {

namespace {
/// Standard output of a command that ends with status 0.
std::optional<std::string> outputOf(std::vector<std::string> words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return std::nullopt;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  bool started = ::posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  char block[4096];
  while (started) {
    ssize_t count = ::read(ends[0], block, sizeof(block));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      break;
    text.append(block, size_t(count));
  }
  ::close(ends[0]);
  int status = 0;
  while (started && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!started || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return std::nullopt;
  return text;
}
} // namespace

std::optional<ProcessMemory> measureProcess(const std::string &planPath, const std::string &target,
                                            uint32_t variant) {
  std::error_code code;
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", code);
  if (code)
    return std::nullopt;
  std::optional<std::string> text =
      outputOf({(self.parent_path() / "trun").string(), "memory", planPath, "--target", target, "--variant",
                std::to_string(variant)});
  nlohmann::json line = parseJsonOrNull(text.value_or(""));
  if (!line.is_object())
    return std::nullopt;
  return ProcessMemory{line.value("process_bytes", uint64_t(0)), line.value("host_bytes", uint64_t(0)),
                       line.value("library_bytes", uint64_t(0))};
}

} // namespace tcc::report
