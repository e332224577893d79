//===- RankTarget.cpp - which targets this machine's card runs ----------===//
#include "runtime/cuda/Card.h"
#include "runtime/cuda/CudaDevice.h"
#include "support/Advice.h"

namespace tcc::runtime {

using cuda::DriverLibrary;

Expected<uint32_t> rankCudaTarget(const std::string &target) {
  Expected<DriverLibrary> driver = DriverLibrary::open();
  if (!driver)
    return driver.status();
  Expected<cuda::Card> card = cuda::Card::open(*driver);
  if (!card)
    return card.status();
  const int wanted = cuda::capabilityOf(target.substr(target.find(':') + 1));
  if (wanted == 0 || card->capability() < wanted)
    return error("{} has compute capability {}.{}, which does not run code for {}; compile with {}",
                 card->name(), card->capability() / 10, card->capability() % 10, target,
                 advice::compile("target", fmt::format("cuda:sm_{}", card->capability())));
  return static_cast<uint32_t>(wanted);
}

} // namespace tcc::runtime
