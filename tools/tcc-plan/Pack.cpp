//===- Pack.cpp - tcc-plan pack -------------------------------------------===//
//
// A problem is a CSV file with a header: the columns id, lower, upper (half-open times) and size (bytes), in any order.
// Other columns are kept. The answer is the same table with an added column `offset`.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/PackingSearch.h"
#include "support/AtomicFile.h"
#include "support/MappedFile.h"
#include "tools/common/CommandLine.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc-plan/Commands.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <sstream>

namespace tcc::tools {

namespace {

using planning::Bytes;

/// Enough work that users rarely reach the limit; --work and --deadline set others.
constexpr uint64_t kDefaultWork = 20'000'000'000;
constexpr uint64_t kLargest = uint64_t(1) << 61; ///< sums of a few sizes stay within 64 bits

struct Table {
  std::vector<std::string> lines; ///< as they were read, the header first
  planning::PackingProblem problem;
};

std::vector<std::string> cells(const std::string &line) {
  std::vector<std::string> result;
  std::stringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');)
    result.push_back(CLI::detail::trim_copy(cell));
  return result;
}

template <typename Integer> bool parse(const std::string &text, Integer &value) {
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size();
}

Expected<Table> readTable(const std::string &path) {
  Expected<std::string> content = tcc::readFile(path);
  if (!content)
    return content.status();
  std::istringstream file(content.take());
  Table table;
  table.problem.alignment = 1;
  std::string line;
  std::vector<std::string> header;
  std::set<std::string> ids;
  std::array<size_t, 4> columns{};
  constexpr const char *kNames[] = {"id", "lower", "upper", "size"};
  Bytes total = 0;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (!line.empty() && line.back() == '\r')
      line.pop_back();
    if (line.empty())
      continue;
    std::vector<std::string> row = cells(line);
    table.lines.push_back(line);
    if (header.empty()) {
      header = row;
      for (size_t i = 0; i < columns.size(); ++i) {
        auto found = std::find(header.begin(), header.end(), kNames[i]);
        if (found == header.end())
          return error("{}:{}: the header has no column `{}`; it needs id, lower, upper and size", path, number,
                             kNames[i]);
        columns[i] = size_t(found - header.begin());
      }
      if (std::find(header.begin(), header.end(), "offset") != header.end())
        return error("{}:{}: there is a column `offset` already: this is an answer, not a problem", path, number);
      continue;
    }
    if (row.size() != header.size())
      return error("{}:{}: {} cells, but the header has {}", path, number, row.size(), header.size());
    planning::PackingBuffer buffer;
    buffer.name = row[columns[0]];
    planning::Time upper = 0;
    if (!parse(row[columns[1]], buffer.first) || !parse(row[columns[2]], upper))
      return error("{}:{}: lower and upper must be integers", path, number);
    if (!parse(row[columns[3]], buffer.bytes))
      return error("{}:{}: size must be a number of bytes, not `{}`", path, number, row[columns[3]]);
    if (upper <= buffer.first)
      return error("{}:{}: {} lives from {} to {}: upper must be larger than lower", path, number, buffer.name,
                         buffer.first, upper);
    if (!ids.insert(buffer.name).second)
      return error("{}:{}: the id {} occurs twice", path, number, buffer.name);
    if (buffer.bytes > kLargest || (total += buffer.bytes) > kLargest)
      return error("{}:{}: the sizes add up to more than 2^61 bytes", path, number);
    buffer.last = upper - 1;
    table.problem.buffers.push_back(buffer);
  }
  if (header.empty())
    return error("{}: is empty; it needs a header with id, lower, upper and size", path);
  return table;
}

Status writeAnswer(const std::string &path, const Table &table, const std::vector<Bytes> &offsets) {
  std::string text = table.lines.front() + ",offset\n";
  for (size_t i = 0; i < offsets.size(); ++i)
    text += fmt::format("{},{}\n", table.lines[i + 1], offsets[i]);
  if (!path.empty())
    return tcc::writeFileAtomically(path, text, OwnFile::Packing);
  printResult("{}", text);
  return Status::success();
}

} // namespace

int packCommand(int argc, char **argv) {
  CLI::App app(
      "Places buffers of known lifetime in one arena. PROBLEM.csv has the columns id, lower, upper (half-open\n"
      "times) and size (bytes); the answer adds the column offset. Without --capacity the search\n"
      "minimises the arena. Exit status 3 if the buffers do not fit into the capacity.",
      "tcc-plan pack");
  std::string problem, output;
  uint64_t capacity = 0;
  SearchLimits limits;
  app.add_option("PROBLEM", problem, "CSV file")->required();
  auto *bounded = app.add_option("--capacity", capacity, "size of the arena: bytes, or with KiB, MiB, GiB")
                      ->transform(CLI::AsSizeValue(false));
  app.add_option("-o,--output", output, "write the answer to this file; default: standard output");
  limits.addTo(app, "visits of a buffer at one time", std::to_string(kDefaultWork));
  Arguments arguments = readArguments(app, argc, argv);
  if (arguments.answered)
    return kExitDone;
  if (!arguments.status.ok())
    return printError(arguments.status);
  if (Status status = checkOutputs(app, {{"--output", OwnFile::Packing}}); !status.ok())
    return printError(status);
  Expected<Table> table = readTable(problem);
  if (!table)
    return printError(table.status());

  const uint64_t work = limits.work ? limits.work : kDefaultWork;
  const std::function<bool()> stop = limits.stop();
  planning::PackingSolution solution = planning::packGreedily(table->problem);
  if (!bounded->count()) {
    solution = planning::pack(table->problem, work, stop);
  } else if (solution.bytes > capacity) {
    planning::SearchAnswer answer;
    answer.result = planning::SearchResult::Infeasible;
    if (solution.lowerBound <= capacity)
      answer = planning::packWithin(table->problem, capacity, work, stop);
    if (answer.result != planning::SearchResult::Found)
      return printError(Status(
          answer.result == planning::SearchResult::Infeasible
              ? fmt::format("{}: does not fit into {} bytes{}; best-fit needs {}", problem, capacity,
                            solution.lowerBound > capacity ? fmt::format(", {} are live at once", solution.lowerBound)
                                                           : std::string(", as the search proved"),
                            solution.bytes)
              : fmt::format(
                    "{}: no packing into {} bytes was found within the {} allowed; {} are live at once, best-fit "
                    "needs {}. Try more --work",
                    problem, capacity, limits.hasDeadline() ? "time" : "work", solution.lowerBound, solution.bytes),
          StatusCode::OverBudget));
    solution.offsets = std::move(answer.offsets);
    solution.bytes = 0;
    for (size_t i = 0; i < solution.offsets.size(); ++i)
      solution.bytes = std::max(solution.bytes, solution.offsets[i] + table->problem.buffers[i].bytes);
  }
  if (std::string clash = planning::validate(table->problem, solution); !clash.empty())
    return printError(error("internal error: the packing is wrong: {}", clash));
  if (Status status = writeAnswer(output, *table, solution.offsets); !status.ok())
    return printError(status);
  printMessage("{} buffers in {} bytes, {} live at once: ratio {:.4f}, {:.2f} s{}\n", solution.offsets.size(),
             solution.bytes, solution.lowerBound,
             solution.lowerBound ? double(solution.bytes) / double(solution.lowerBound) : 1.0, limits.seconds(),
             limits.hasDeadline() ? " (with a deadline: not reproducible)" : "");
  return kExitDone;
}

} // namespace tcc::tools
