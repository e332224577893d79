//===- NearestName.cpp - suggest the nearest known name -------------------===//
#include "support/NearestName.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <numeric>

namespace tcc {

namespace {
/// Models have names of kilobytes, and many of them: nobody typed a name longer than this.
constexpr size_t kMostLetters = 256;

std::string lettersOf(std::string_view name) {
  std::string letters;
  for (char c : name)
    if (c != '_' && c != '-' && c != '*' && c != '?')
      letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return letters;
}

/// Optimal string alignment: as Levenshtein's distance, and two neighbours swapped count once.
size_t alignmentDistance(const std::string &a, const std::string &b) {
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    before.swap(row);
    row.swap(next);
  }
  return row.back();
}
} // namespace

std::optional<size_t> nameDistance(std::string_view given, std::string_view known) {
  if (given.size() > kMostLetters || known.size() > kMostLetters)
    return std::nullopt;
  std::string a = lettersOf(given), b = lettersOf(known);
  size_t longer = std::max(a.size(), b.size()), shorter = std::min(a.size(), b.size());
  if (a.empty() || b.empty() || longer - shorter > longer / 3)
    return std::nullopt;
  size_t distance = alignmentDistance(a, b);
  return distance <= longer / 3 ? std::optional(distance) : std::nullopt;
}

std::vector<std::string> nearNames(std::string_view given, std::span<const std::string> known, size_t most) {
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string &name : known)
    if (auto distance = nameDistance(given, name))
      near.emplace_back(*distance, name);
  std::stable_sort(near.begin(), near.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(most, near.size()); ++i)
    names.push_back(std::move(near[i].second));
  return names;
}

std::string nearestName(std::string_view given, std::span<const std::string> known) {
  std::vector<std::string> near = nearNames(given, known, 1);
  return near.empty() ? "" : std::move(near.front());
}

std::string nearestOrSome(std::string_view given, std::span<const std::string> known) {
  constexpr size_t kShown = 3;
  if (std::vector<std::string> near = nearNames(given, known, kShown); !near.empty())
    return fmt::format("the nearest {} {}", near.size() == 1 ? "is" : "are", fmt::join(near, ", "));
  if (known.empty())
    return "there are none";
  const size_t shown = std::min(kShown, known.size());
  return fmt::format("{} {}{}", known.size() == 1 ? "there is" : "there are", fmt::join(known.first(shown), ", "),
                     known.size() > shown ? fmt::format(" and {} more", known.size() - shown) : "");
}

} // namespace tcc
