//===- OwnProcess.cpp - work in a process of its own ----------------------===//
//
// The child writes texts to a pipe, each preceded by its length: the exit code, the error's message, then the results.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/OwnProcess.h"
#include "tools/common/OutOfMemory.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

namespace tcc::tools {

namespace {
constexpr int kOutOfMemory = 41; ///< the child's exit status

bool writeAll(int to, const void *data, size_t bytes) {
  for (const char *at = static_cast<const char *>(data); bytes > 0;) {
    ssize_t done = ::write(to, at, bytes);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      return false;
    at += done;
    bytes -= size_t(done);
  }
  return true;
}

bool writeText(int to, std::string_view text) {
  uint64_t bytes = text.size();
  return writeAll(to, &bytes, sizeof(bytes)) && writeAll(to, text.data(), text.size());
}

bool readAll(int from, void *data, size_t bytes) {
  for (char *at = static_cast<char *>(data); bytes > 0;) {
    ssize_t done = ::read(from, at, bytes);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      return false;
    at += done;
    bytes -= size_t(done);
  }
  return true;
}

/// Reads until the end of the pipe, or until a truncated text.
std::vector<std::string> readTexts(int from) {
  std::vector<std::string> texts;
  for (uint64_t bytes = 0; readAll(from, &bytes, sizeof(bytes));) {
    std::string text(bytes, '\0');
    if (!readAll(from, text.data(), text.size()))
      return {};
    texts.push_back(std::move(text));
  }
  return texts;
}
} // namespace

Expected<std::vector<std::string>> inOwnProcess(const std::function<Expected<std::vector<std::string>>()> &work) {
  int ends[2];
  if (::pipe(ends) != 0)
    return error("cannot make a pipe: {}", std::strerror(errno));
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    return error("cannot start a process: {}", std::strerror(errno));
  }
  if (child == 0) {
    ::close(ends[0]);
    endQuietlyOnLackOfMemory(kOutOfMemory);
    // An exception must not reach the parent's code in this process.
    Expected<std::vector<std::string>> results = error("internal error: an exception of a library");
    try {
      results = work();
    } catch (const std::exception &problem) {
      endIfOutOfMemory(problem);
      results = error("internal error: {}", problem.what());
    }
    bool good = writeText(ends[1], std::to_string(static_cast<int>(results.status().code()))) &&
                writeText(ends[1], results ? "" : results.status().message());
    if (results)
      for (const std::string &text : *results)
        good = good && writeText(ends[1], text);
    std::fflush(nullptr);
    ::_exit(good ? 0 : 1);
  }
  ::close(ends[1]);
  std::vector<std::string> texts = readTexts(ends[0]);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kOutOfMemory)
    endOutOfMemory();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || texts.size() < 2)
    return WIFSIGNALED(status) ? error("the process that compiles one target ended by signal {}", WTERMSIG(status))
                               : error("the process that compiles one target ended without a result");
  if (texts[0] != "0")
    return Status(texts[1], static_cast<StatusCode>(std::stoi(texts[0])));
  texts.erase(texts.begin(), texts.begin() + 2);
  return texts;
}

} // namespace tcc::tools
