//===- MatmulTiling.cpp - how a product is cut into tiles ----------------===//
#include "runtime/cpu/calls/MatmulTiling.h"

#include "runtime/plan/DType.h"

namespace tcc::runtime {

using namespace tiling;

int64_t MatmulTiling::tiles(const MatmulShape &s) const {
  return ceilDiv(s.batch, tileBatch) * ceilDiv(s.m, tileM) * ceilDiv(s.n, tileN) * chunks(s);
}

MatmulPlace MatmulTiling::placeOf(const MatmulShape &s, int64_t tile) const {
  int64_t tilesM = ceilDiv(s.m, tileM), tilesN = ceilDiv(s.n, tileN), tilesBatch = ceilDiv(s.batch, tileBatch);
  int64_t inPlane = tile % (tilesM * tilesN), outer = tile / (tilesM * tilesN);
  return {outer % tilesBatch * tileBatch, inPlane % tilesM * tileM, inPlane / tilesM * tileN, outer / tilesBatch};
}

packed::Elements elementsOfA(const MatmulShape &shape) {
  return shape.widened             ? packed::Elements::WideBf16
         : shape.elementBytes == 2 ? packed::Elements::Bf16
                                   : packed::Elements::F32;
}

packed::Elements elementsOfB(const MatmulShape &shape) {
  if (!shape.roundsB)
    return elementsOfA(shape);
  return shape.widened ? packed::Elements::WideRounded : packed::Elements::Rounded;
}

Expected<MatmulShape> shapeOf(const plan::MatmulCall &call) {
  plan::DType result = call.result_dtype() == plan::DTYPE_NONE ? call.dtype() : call.result_dtype();
  if (call.dtype() != plan::F32 && call.dtype() != plan::BF16)
    return error("there is no {} matmul call: the product must be compiled", plan::dtypeName(call.dtype()));
  if ((result != plan::F32 && result != call.dtype()) || (call.accumulate() && result != plan::F32))
    return error("no matmul call of {} gives {}{}: the product must be compiled", plan::dtypeName(call.dtype()),
                 plan::dtypeName(result), call.accumulate() ? " added to a sum" : "");
  constexpr int64_t limit = int64_t(1) << 31;
  for (auto [name, value] : {std::pair{"batch", call.batch()}, {"m", call.m()}, {"n", call.n()}, {"k", call.k()}})
    if (value < 1 || value >= limit)
      return error("a matmul with {} = {} is not supported", name, value);
  // Limit sizes so that numbers of bytes are far below 2^64.
  for (auto [rows, columns] : {std::pair{call.m(), call.n()}, {call.m(), call.k()}, {call.k(), call.n()}})
    if (static_cast<double>(call.batch()) * static_cast<double>(rows) * static_cast<double>(columns) > 0x1p48)
      return error("a matmul of {} x {} x {} x {} is too large", call.batch(), call.m(), call.n(), call.k());
  if ((call.rounds_b() || call.widened()) && call.dtype() != plan::BF16)
    return error("a matmul of {} that {} bf16", plan::dtypeName(call.dtype()),
                 call.rounds_b() ? "rounds an operand to" : "widens");
  // Without bf16 instructions, bf16 is multiplied in f32, which loses no accuracy.
  return MatmulShape{call.batch(),
                     call.m(),
                     call.n(),
                     call.k(),
                     call.trans_a(),
                     call.trans_b(),
                     call.widened() ? 4 : plan::dtypeBytes(call.dtype()),
                     call.widened(),
                     result != plan::F32,
                     call.rounds_b() || (call.has_four_bits() && call.dtype() == plan::BF16)};
}

Expected<MatmulTiling> tilingOf(const plan::MatmulCall &call, const MatmulShape &s) {
  MatmulTiling t{call.tile_batch(), call.tile_m(), call.tile_n(), call.chunk_k(), call.block_k()};
  for (auto [name, value, most] : {std::tuple{"tile_batch", t.tileBatch, s.batch},
                                   {"tile_m", t.tileM, s.m},
                                   {"tile_n", t.tileN, s.n},
                                   {"chunk_k", t.chunkK, s.k},
                                   {"block_k", t.blockK, t.chunkK}})
    if (value < 1 || value > most)
      return error("a matmul's {} of {} is not from 1 to {}", name, value, most);
  if (t.tileBatch > 1 && (t.tileM != s.m || t.tileN != s.n || t.blockK != s.k))
    return error("tiles of {} products must be whole ones, these are {} x {} x {} of {} x {} x {}", t.tileBatch,
                 t.tileM, t.tileN, t.blockK, s.m, s.n, s.k);
  return t;
}

} // namespace tcc::runtime
