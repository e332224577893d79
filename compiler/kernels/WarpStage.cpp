//===- WarpStage.cpp - rows that a block's warps read together ------------===//
#include "compiler/kernels/WarpStage.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace tcc::train {

llvm::SmallVector<FeaturePart> featurePartsOf(const TileForm &form, int64_t features, int64_t threads) {
  constexpr int64_t kMostBytes = 16; // largest access of a thread
  llvm::SmallVector<FeaturePart> parts;
  for (int64_t first = 0, perThread = kMostBytes / form.elementBytes(); first < features;) {
    while (perThread * threads > features - first)
      perThread /= 2;
    parts.push_back({first, perThread});
    first += perThread * threads;
  }
  return parts;
}

namespace {
constexpr int64_t kThreadRows = 4;                                 ///< a thread's rows of 16, in products over rows
constexpr int64_t kMostStageBytes = 48 << 10, kMostStageRows = 64; ///< limit of static shared memory; limit of rows
constexpr int64_t kStageBuffers = 2;
} // namespace

WarpStage::WarpStage(LoopBuilder &loops, const TileForm &form, int64_t firstFeatures, int64_t secondFeatures)
    : warp(Index(loops, loops.thread()) / kGroupThreads),
      eighth(Index(loops, loops.thread()) % kGroupThreads / kFeatureThreads),
      fourth(Index(loops, loops.thread()) % kFeatureThreads), columnRow(eighth / 2 * 4 + eighth % 2), loops(loops),
      form(form), stageRows(kMostStageRows) {
  for (auto [side, features] : {std::pair(&sides[0], firstFeatures), std::pair(&sides[1], secondFeatures)})
    *side = Side{form.padded(features), 0, form.padded(features) * form.elementBytes()};
  const int64_t bothBytes = sides[0].rowBytes + sides[1].rowBytes;
  while (stageRows * bothBytes * kStageBuffers > kMostStageBytes)
    stageRows /= 2;
  bufferBytes = stageRows * bothBytes;
  sides[1].offset = stageRows * sides[0].rowBytes;
  loops.reserveBlockMemory(bufferBytes * kStageBuffers);
  Index ofColumn = changeOf(columnRow);
  for (Side &side : sides) {
    for (FeaturePart part : featurePartsOf(form, side.features, kFeatureThreads))
      side.columns.push_back(columnRow * side.rowBytes + placeOf(side, part, fourth, ofColumn));
    for (FeaturePart part : featurePartsOf(form, side.features, kColumnThreads)) {
      std::array<Value, 2> offsets;
      for (int64_t odd = 0; odd < 2; ++odd)
        offsets[size_t(odd)] =
            fourth * (kThreadRows * side.rowBytes) + placeOf(side, part, eighth, changeOf(fourth * kThreadRows + odd));
      side.across.push_back(offsets);
    }
  }
}

Index WarpStage::exclusiveOr(Index x, Index y) {
  return Index(loops, arith::XOrIOp::create(loops.builder, loops.loc, x.value, y.value));
}

/// The swizzle of a row against bank conflicts. Products over features read four neighbouring pieces of rows 4a and 4a
/// + 1 (or 2 later) at the same time; products over rows read two pieces of rows i, 4 + i, 8 + i and 12 + i.
Index WarpStage::changeOf(Index row) { return exclusiveOr(row / 4 % 4 * 2, row % 2 * 4); }

Index WarpStage::placeOf(const Side &side, FeaturePart part, Index thread, Index change) {
  const int64_t together = pieceElements() / part.perThread; // threads that read one piece
  Index piece = thread / together + part.first / pieceElements();
  // Change only the lower bits, so that the piece stays in its row.
  const int64_t exchanged = std::min<int64_t>(8, side.pieces() & -side.pieces());
  return exclusiveOr(piece, change % exchanged) * kPieceBytes +
         thread % together * (part.perThread * form.elementBytes());
}

void WarpStage::copyStage(const std::array<WarpRows, 2> &rows, int64_t count, Value first, Index buffer) {
  constexpr int64_t kBlockThreads = kWarps * kGroupThreads;
  for (size_t number = 0; number < sides.size(); ++number) {
    const Side &side = sides[number];
    const WarpRows &from = rows[number];
    const int64_t pieces = stageRows * side.pieces(), ownBytes = from.features * form.elementBytes();
    for (int64_t done = 0; done < pieces; done += kBlockThreads) {
      auto copy = [&]() -> Values {
        Index piece = Index(loops, loops.thread()) + done, inStage = piece / side.pieces(),
              inRow = piece % side.pieces();
        Index row = Index(loops, first) + inStage;
        Index source = row, sourcePiece = inRow;
        Value bytes;
        if (ownBytes < side.rowBytes) { // features end before the row does
          bytes = (Index(loops, ownBytes) - inRow * kPieceBytes).atMost(kPieceBytes);
          bytes = arith::MaxSIOp::create(loops.builder, loops.loc, bytes, loops.index(0));
          sourcePiece = inRow.atMost((ownBytes - 1) / kPieceBytes);
        }
        if (count % stageRows) {
          source = row.atMost(count - 1);
          bytes = arith::SelectOp::create(loops.builder, loops.loc, row.isBelow(loops.index(count)),
                                          bytes ? bytes : loops.index(kPieceBytes), loops.index(0));
        }
        Index place = placeOf(side, {0, pieceElements()}, inRow, changeOf(inStage));
        loops.copyToBlock(from.number, Index(loops, from.base) + source * from.stride + sourcePiece * pieceElements(),
                          from.alignment, buffer + side.offset + inStage * side.rowBytes + place, bytes);
        return {};
      };
      if (pieces - done >= kBlockThreads)
        copy();
      else
        loops.when(Index(loops, loops.thread()).isBelow(loops.index(pieces - done)), copy, {});
    }
  }
}

WarpStage::Values WarpStage::walk(Value begin, Value end, int64_t count, const std::array<WarpRows, 2> &from,
                                  ValueRange inits, llvm::function_ref<Values(Value, Value, ValueRange)> body) {
  Values carried(inits);
  carried.push_back(loops.index(0));
  loops.when(Index(loops, begin).isBelow(end),
             [&]() -> Values { return copyStage(from, count, begin, Index(loops, 0)), Values(); }, {});
  carried = loops.loop(begin, end, stageRows, carried, [&](Value first, ValueRange now) -> Values {
    Value buffer = now.back(), next = Index(loops, first) + stageRows;
    Value other = Index(loops, bufferBytes) - buffer;
    loops.meetBlock(); // all have copied this stage, and nobody reads the previous one any more
    loops.when(Index(loops, next).isBelow(end),
               [&]() -> Values { return copyStage(from, count, next, Index(loops, other)), Values(); }, {});
    Values results = body(first, buffer, now.drop_back());
    results.push_back(other);
    return results;
  });
  loops.meetBlock();
  carried.pop_back();
  return carried;
}

WarpStage::Values WarpStage::featuresOf(size_t number, Value buffer, Value row, int64_t j) {
  const Side &side = sides[number];
  Index start = Index(loops, buffer) + Index(loops, row) * side.rowBytes;
  Values words;
  for (auto [part, column] : llvm::zip_equal(featurePartsOf(form, side.features, kFeatureThreads), side.columns))
    llvm::append_range(words, loops.loadBlockMemory(start + column + (side.offset + 2 * j * side.rowBytes),
                                                    part.perThread / form.wordElements()));
  return words;
}

WarpStage::Values WarpStage::acrossRows(size_t number, Value buffer, Value row, const FeatureRange &range) {
  const Side &side = sides[number];
  Index start = Index(loops, buffer) + Index(loops, row) * side.rowBytes;
  Values all;
  for (auto [part, across] : llvm::zip_equal(featurePartsOf(form, side.features, kColumnThreads), side.across)) {
    if (!range.contains(part))
      continue;
    std::array<Values, kThreadRows> words;
    for (int64_t i = 0; i < kThreadRows; ++i)
      words[size_t(i)] = loops.loadBlockMemory(start + across[size_t(i % 2)] + (side.offset + i * side.rowBytes),
                                               part.perThread / form.wordElements());
    for (int64_t feature = 0; feature < part.perThread; ++feature) {
      const size_t word = size_t(feature / form.wordElements());
      for (size_t i : {0, 2})
        if (form.isNarrow())
          all.push_back(loops.halvesOf(words[i][word], words[i + 1][word], feature % 2));
        else
          all.append({words[i][word], words[i + 1][word]});
    }
  }
  return all;
}

} // namespace tcc::train
