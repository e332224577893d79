//===- Cluster.h - description of a cluster for predictions -----*- C++ -*-===//
//
// A TOML file: docs/guide/predict-scale.md has its keys, examples/clusters/ some with their sources.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TOOLS_TCC_CLUSTER_H
#define TCC_TOOLS_TCC_CLUSTER_H

#include "runtime/plan/plan.pb.h"
#include "support/Status.h"

#include <cstdint>
#include <string>

namespace tcc::report {

/// Rates of a ring of devices: bytes a second that each sends while it receives as many, and seconds for a message.
struct LinkRates {
  double bytesPerSecond = 0, seconds = 0;
};

struct Cluster {
  std::string name, source;
  std::string target; ///< the plans' target: "cuda:sm_90"; empty: this machine's
  uint64_t ranksPerNode = 1;
  uint64_t memoryBytes = 0;           ///< of a device
  uint64_t reservedBytes = 0;         ///< of it, by the driver and libraries
  double f32 = 0, tf32 = 0, bf16 = 0; ///< operations a second of products; f16 as bf16
  double vectorF32 = 0;               ///< of everything else
  double memoryRate = 0;              ///< bytes a second of the device's memory
  double efficiency = 1;              ///< the share of these rates that a step reaches
  LinkRates within, between;          ///< devices of a node; nodes, all their devices together
  bool overlap = true;                ///< messages travel while the devices compute

  double productRate(plan::DType dtype, bool tensorF32) const;
};

/// Errors begin with file, line and column.
Expected<Cluster> readCluster(const std::string &path);

} // namespace tcc::report

#endif // TCC_TOOLS_TCC_CLUSTER_H
