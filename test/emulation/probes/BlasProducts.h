//===- BlasProducts.h - what cuBLASLt's heuristics answer ----------------===//
#ifndef TCC_TEST_EMULATION_PROBES_BLASPRODUCTS_H
#define TCC_TEST_EMULATION_PROBES_BLASPRODUCTS_H

namespace tcc::probes {

/// Prints a line of JSON for each of many usual products: the algorithms that the library lists, as the runtime asks
/// for them. False: the library answered none of the questions.
bool printProducts();

} // namespace tcc::probes

#endif // TCC_TEST_EMULATION_PROBES_BLASPRODUCTS_H
