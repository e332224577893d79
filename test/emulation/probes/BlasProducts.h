//===- BlasProducts.h - what cuBLASLt's heuristics answer ----------------===//
#ifndef TCC_TEST_EMULATION_PROBES_BLASPRODUCTS_H
#define TCC_TEST_EMULATION_PROBES_BLASPRODUCTS_H

namespace tcc::probes {

/// Prints a line of JSON for each of many common products: the algorithms that the library lists when asked as the
/// runtime asks. False: it listed none for any product.
bool printProducts();

} // namespace tcc::probes

#endif // TCC_TEST_EMULATION_PROBES_BLASPRODUCTS_H
