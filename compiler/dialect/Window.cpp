//===- Window.cpp - sliding windows -----------------------------*- C++ -*-===//
#include "compiler/dialect/Window.h"

#include "compiler/dialect/Verify.h"

#include <functional>

using namespace mlir;

namespace tcc::train {

bool Window::input(llvm::ArrayRef<int64_t> q, llvm::ArrayRef<int64_t> k, llvm::ArrayRef<int64_t> extents,
                   llvm::SmallVectorImpl<int64_t> &in) const {
  in.clear();
  for (size_t d = 0; d < rank(); ++d) {
    in.push_back(input(d, q[d], k[d]));
    if (in.back() < 0 || in.back() >= extents[d])
      return false;
  }
  return true;
}

static Value both(ElementBuilder &builder, Value x, Value y) {
  return x ? arith::AndIOp::create(builder.builder, builder.loc, x, y).getResult() : y;
}

WindowElement inputsOf(ElementBuilder &builder, const Window &window, llvm::ArrayRef<Coord> q, ValueRange k,
                       llvm::ArrayRef<int64_t> kernel, llvm::ArrayRef<int64_t> inputs, llvm::ArrayRef<int64_t> outputs) {
  WindowElement element;
  for (size_t d = 0; d < window.rank(); ++d) {
    Coord in = builder.add(builder.affine(q[d], window.strides[d], -window.pads[d]),
                           builder.affine(builder.uniform(k[d]), window.dilations[d], 0));
    element.coords.push_back(in);
    if (window.pads[d] > 0 || window.input(d, outputs[d] - 1, kernel[d] - 1) >= inputs[d])
      element.inside = both(builder, element.inside, builder.inBounds(in, inputs[d]));
  }
  return element;
}

WindowElement outputsOf(ElementBuilder &builder, const Window &window, llvm::ArrayRef<Coord> in, ValueRange k,
                        llvm::ArrayRef<int64_t> outputs) {
  WindowElement element;
  for (size_t d = 0; d < window.rank(); ++d) {
    int64_t stride = window.strides[d];
    Coord scaled = builder.add(builder.affine(in[d], 1, window.pads[d]),
                               builder.affine(builder.uniform(k[d]), -window.dilations[d], 0));
    Value inside = builder.inBounds(scaled, (outputs[d] - 1) * stride + 1);
    if (stride > 1) {
      // A window starts here only where the distance is a multiple of the stride.
      Coord q = digitOf(builder, scaled, stride, 0);
      Lane back(builder, builder.coordValue(builder.affine(q, stride, 0)));
      inside = both(builder, inside, equal(back, back.with(builder.coordValue(scaled))));
      scaled = q;
    }
    element.coords.push_back(scaled);
    element.inside = both(builder, element.inside, inside);
  }
  return element;
}

Value operandInside(ElementBuilder &builder, unsigned operand, llvm::ArrayRef<Coord> coords, Value inside, Value otherwise) {
  return inside ? builder.operandIf(operand, coords, inside, otherwise) : builder.operand(operand, coords);
}

llvm::SmallVector<Value> loopNest(ElementBuilder &builder, llvm::ArrayRef<int64_t> extents, ValueRange inits,
                                  llvm::function_ref<llvm::SmallVector<Value>(ValueRange, ValueRange)> body) {
  llvm::SmallVector<Value> counters;
  std::function<llvm::SmallVector<Value>(ValueRange)> nest = [&](ValueRange carried) -> llvm::SmallVector<Value> {
    if (counters.size() == extents.size())
      return body(counters, carried);
    return builder.loop(0, extents[counters.size()], carried, [&](Value i, ValueRange inner) {
      counters.push_back(i);
      llvm::SmallVector<Value> next = nest(inner);
      counters.pop_back();
      return next;
    });
  };
  return nest(inits);
}

} // namespace tcc::train
