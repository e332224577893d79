//===- Rates.cpp - what cards reach of their data sheets ------------------===//
#include "runtime/cuda/cards/Rates.h"

#include "runtime/cuda/cards/Cards.h"

namespace tcc::nvidia {

Rates ratesOf(std::string_view architecture) {
  constexpr std::string_view kMeasured = "sm_90";
  Rates rates;
  const Card *measured = usualCard(kMeasured), *card = usualCard(architecture);
  if (architecture == kMeasured || !card)
    return rates;
  rates.measured = false;
  const double f32 = card->f32 / measured->f32, narrow = card->bf16 / measured->bf16;
  rates.call *= f32;
  rates.kernel *= f32;
  rates.memory *= card->bytesPerSecond / measured->bytesPerSecond;
  rates.narrowProduct *= narrow;
  rates.narrowConvolution *= narrow;
  rates.tiles *= narrow;
  rates.attentionCall *= narrow;
  if (architecture == "sm_80")
    rates.operationsPerCycle = 128; // 64 lanes
  return rates;
}

} // namespace tcc::nvidia
