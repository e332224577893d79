//===- TextTable.h - numbers and tables for a terminal ----------*- C++ -*-===//
#ifndef TCC_TOOLS_COMMON_TEXTTABLE_H
#define TCC_TOOLS_COMMON_TEXTTABLE_H

#include <cstdint>
#include <string>
#include <vector>

namespace tcc::report {

constexpr size_t kLineWidth = 110;

/// A table with headings; every column is as wide as its widest cell. Columns are separated by two spaces.
class Table {
public:
  /// `alignments`: one character a column, '<' for text and '>' for numbers.
  Table(std::string alignments, std::vector<std::string> headings)
      : alignments(std::move(alignments)), rows{std::move(headings)} {}

  void add(std::vector<std::string> cells) { rows.push_back(std::move(cells)); }
  bool empty() const { return rows.size() == 1; }
  std::string text() const;

private:
  std::string alignments;
  std::vector<std::vector<std::string>> rows;
};

/// "512 B", "1.5 KiB", "2.0 MiB", "3.00 GiB".
std::string formatBytes(uint64_t bytes);

/// "1 buffer", "2 buffers".
std::string counted(uint64_t count, const std::string &noun);

/// "20 FLOP", "1.5 GFLOP".
std::string flopText(double flops);

/// "350 ns", "1.25 ms".
std::string timeText(uint64_t nanoseconds);

/// "3.1 %".
std::string percentText(double fraction);

/// "a, b, c and 9 more", in lines of at most kLineWidth characters that start with `indent` spaces after the first.
std::string listText(const std::vector<std::string> &names, size_t shown, size_t indent = 0);

/// Generated kernels are named by a hash of their code, also in the name of a product whose rows go to one. Shortens
/// the hash for people.
std::string kernelText(const std::string &name);

} // namespace tcc::report

#endif // TCC_TOOLS_COMMON_TEXTTABLE_H
