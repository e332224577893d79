//===- Cards.cpp - data sheets of NVIDIA's cards --------------------------===//
#include "runtime/cuda/cards/Cards.h"

#include <algorithm>
#include <cctype>

namespace tcc::nvidia {

namespace {
constexpr uint64_t gigabytes(uint64_t count) { return count * 1'000'000'000; }
constexpr double kTera = 1e12, kGiga = 1e9;

constexpr Card kCards[] = {
    {"a100", "A100 80GB SXM", "NVIDIA A100-SXM4-80GB", "sm_80", gigabytes(80), 2039 * kGiga, 19.5 * kTera, 156 * kTera,
     312 * kTera, 108, "NVIDIA A100 Tensor Core GPU data sheet"},
    {"a100-40gb", "A100 40GB SXM", "NVIDIA A100-SXM4-40GB", "sm_80", gigabytes(40), 1555 * kGiga, 19.5 * kTera,
     156 * kTera, 312 * kTera, 108, "NVIDIA A100 Tensor Core GPU data sheet"},
    {"a10", "A10", "NVIDIA A10", "sm_86", gigabytes(24), 600 * kGiga, 31.2 * kTera, 62.5 * kTera, 125 * kTera, 72,
     "NVIDIA A10 data sheet"},
    {"rtx3090", "GeForce RTX 3090", "NVIDIA GeForce RTX 3090", "sm_86", gigabytes(24), 936 * kGiga, 35.6 * kTera,
     35.6 * kTera, 71 * kTera, 82, "NVIDIA Ampere GA102 architecture white paper, appendix A"},
    {"l40s", "L40S", "NVIDIA L40S", "sm_89", gigabytes(48), 864 * kGiga, 91.6 * kTera, 183 * kTera, 362 * kTera, 142,
     "NVIDIA L40S data sheet"},
    {"l4", "L4", "NVIDIA L4", "sm_89", gigabytes(24), 300 * kGiga, 30.3 * kTera, 60 * kTera, 121 * kTera, 58,
     "NVIDIA L4 data sheet"},
    {"rtx4090", "GeForce RTX 4090", "NVIDIA GeForce RTX 4090", "sm_89", gigabytes(24), 1008 * kGiga, 82.6 * kTera,
     82.6 * kTera, 165.2 * kTera, 128, "NVIDIA Ada GPU architecture white paper, appendix A"},
    {"h100", "H100 SXM", "NVIDIA H100 80GB HBM3", "sm_90", gigabytes(80), 3350 * kGiga, 66.9 * kTera, 494.7 * kTera,
     989.4 * kTera, 132, "NVIDIA H100 Tensor Core GPU data sheet"},
    {"h100-pcie", "H100 PCIe", "NVIDIA H100 PCIe", "sm_90", gigabytes(80), 2000 * kGiga, 51.2 * kTera, 378 * kTera,
     756 * kTera, 114, "NVIDIA H100 Tensor Core GPU architecture white paper"},
    {"h200", "H200 SXM", "NVIDIA H200", "sm_90", gigabytes(141), 4800 * kGiga, 66.9 * kTera, 494.7 * kTera,
     989.4 * kTera, 132, "NVIDIA H200 Tensor Core GPU data sheet"},
    {"b200", "B200 SXM", "NVIDIA B200", "sm_100", gigabytes(180), 7700 * kGiga, 75 * kTera, 1125 * kTera, 2250 * kTera,
     148, "NVIDIA HGX B200 data sheet, an eighth of it"},
    {"rtx5090", "GeForce RTX 5090", "NVIDIA GeForce RTX 5090", "sm_120", gigabytes(32), 1792 * kGiga, 104.8 * kTera,
     104.8 * kTera, 209.5 * kTera, 170, "NVIDIA RTX Blackwell GPU architecture white paper, appendix A"},
};

constexpr const Card &whole(std::string_view name) {
  return *std::find_if(std::begin(kCards), std::end(kCards), [&](const Card &card) { return card.name == name; });
}

/// A slice with so many eighths of a card's memory and sevenths of its processors.
constexpr Card slice(const Card &card, std::string_view name, std::string_view title, std::string_view driverName,
                     uint64_t memoryBytes, int eighths, int sevenths) {
  Card made = card;
  made.name = name;
  made.title = title;
  made.driverName = driverName;
  made.memoryBytes = memoryBytes;
  made.bytesPerSecond *= eighths / 8.0;
  for (double *rate : {&made.f32, &made.tf32, &made.bf16})
    *rate *= sevenths / 7.0;
  made.processors = card.processors * sevenths / 7;
  made.source = "NVIDIA Multi-Instance GPU User Guide, fractions of the card";
  return made;
}

#define TCC_SLICES(named, card, driver, g1, g2, g3, g4, g7, gb)                                                        \
  slice(whole(card), named "-" g1, "MIG " g1 " of " driver, driver " MIG " g1, gigabytes(gb) / 8, 1, 1),               \
      slice(whole(card), named "-" g2, "MIG " g2 " of " driver, driver " MIG " g2, gigabytes(gb) / 4, 2, 2),           \
      slice(whole(card), named "-" g3, "MIG " g3 " of " driver, driver " MIG " g3, gigabytes(gb) / 2, 4, 3),           \
      slice(whole(card), named "-" g4, "MIG " g4 " of " driver, driver " MIG " g4, gigabytes(gb) / 2, 4, 4),           \
      slice(whole(card), named "-" g7, "MIG " g7 " of " driver, driver " MIG " g7, gigabytes(gb), 8, 7)
constexpr Card kSlices[] = {
    TCC_SLICES("a100", "a100", "NVIDIA A100-SXM4-80GB", "1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", 80),
    TCC_SLICES("a100", "a100-40gb", "NVIDIA A100-SXM4-40GB", "1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", 40),
    TCC_SLICES("h100", "h100", "NVIDIA H100 80GB HBM3", "1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", 80),
};
#undef TCC_SLICES

/// The first card or slice that fulfils a condition.
template <typename Condition> const Card *findIf(Condition condition) {
  for (std::span<const Card> all : {cards(), slices()})
    if (auto found = std::find_if(all.begin(), all.end(), condition); found != all.end())
      return &*found;
  return nullptr;
}
} // namespace

std::span<const Card> cards() { return kCards; }
std::span<const Card> slices() { return kSlices; }

const Card *findCard(std::string_view name) {
  auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return findIf(
      [&](const Card &card) { return std::equal(name.begin(), name.end(), card.name.begin(), card.name.end(), same); });
}

const Card *findCardOfDriver(std::string_view driverName) {
  return findIf([&](const Card &card) { return card.driverName == driverName; });
}

const Card *usualCard(std::string_view architecture) {
  auto found = std::find_if(std::begin(kCards), std::end(kCards),
                            [&](const Card &card) { return card.architecture == architecture; });
  return found == std::end(kCards) ? nullptr : found;
}

} // namespace tcc::nvidia
