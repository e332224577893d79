//===- BlasArithmetic.h - what a product of cuBLASLt computes ------------===//
//
// Shapes that the documentation allows (cuBLAS, "cublasLtMatmul"), and the arithmetic of the stand-in: sums in the
// compute type, split along K if the algorithm has several parts.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_EMULATION_DRIVER_BLASARITHMETIC_H
#define TCC_TEST_EMULATION_DRIVER_BLASARITHMETIC_H

#include "test/emulation/driver/StandIn.h"

#include <initializer_list>

namespace tcc::emulation {

/// The product that a description and four layouts make.
struct Shape {
  uint64_t m = 0, n = 0, k = 0;
  std::string wrong; ///< why the documentation does not allow it; empty: it does
};

Shape shapeOf(const BlasObject &desc, const BlasObject &a, const BlasObject &b, const BlasObject &c,
              const BlasObject &d);

/// What an epilogue reads and writes beside D.
struct Epilogue {
  bool adds = false, gelu = false, derivative = false; ///< a bias; gelu; the product times gelu's derivative
  bool keeps = false;                                  ///< stores gelu's input
  enum Sums { None, RowsOfD, RowsOfA, ColumnsOfB } sums = None;

  bool hasVector() const { return adds || sums != None; }
  bool hasAuxiliary() const { return keeps || derivative; }
};
/// Nothing for an epilogue that the stand-in does not know.
std::optional<Epilogue> epilogueOf(uint32_t number);
/// Elements of the bias, or of the sums.
uint64_t vectorLength(const Epilogue &epilogue, const Shape &shape);
/// Bytes of the biases of a whole batch, or of the sums.
uint64_t vectorSpan(const BlasObject &desc, const Shape &shape, const BlasObject &d);
/// Bytes of gelu's input.
uint64_t auxiliarySpan(const BlasObject &desc, const BlasObject &d);

/// Equal for products whose description and layouts are equal.
uint64_t digestOf(const BlasObject &desc, std::initializer_list<const BlasObject *> layouts);

size_t bytesOf(cuda::api::cudaDataType type);
/// Reads an element as a number; writes a number, rounded once, as an element.
double loadElement(const void *from, uint64_t index, cuda::api::cudaDataType type);
void storeElement(void *to, uint64_t index, double value, cuda::api::cudaDataType type);
/// Rounds to 10 bits of mantissa, ties to even.
float toTf32(float value);
/// Bytes from the first element of a matrix, or batch of matrices, to its last.
uint64_t spanOf(const BlasObject &layout);

/// A submitted product, as it runs.
struct Product {
  BlasObject desc, a, b, c, d;
  Shape shape;
  const void *pointers[3] = {}; ///< A, B, C
  void *result = nullptr, *workspace = nullptr;
  double alpha = 1, beta = 0;
  uint64_t parts = 1, workspaceBytes = 0;
  bool anyOrder = false; ///< of the parts

  /// Touches the operands, fills the workspace with NaN, multiplies.
  std::optional<Fault> run(uint32_t work) const;

private:
  void multiply(uint64_t batch, uint32_t work) const;
  template <typename Sum> void multiplyIn(uint64_t batch, uint32_t work) const;
  /// An element of op(A) or op(B), rounded to the compute type.
  double elementOfA(const void *from, uint64_t row, uint64_t p) const;
  double elementOfB(const void *from, uint64_t p, uint64_t column) const;
  double finish(const Epilogue &epilogue, double value, uint64_t batch, uint64_t row, uint64_t column,
                std::vector<float> &sums) const;
};

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_DRIVER_BLASARITHMETIC_H
