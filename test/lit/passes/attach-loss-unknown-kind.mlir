// The recipe's reader refuses such a kind; a module whose attribute names one is refused, too.
// RUN: not tcc-opt %s --attach-loss 2>&1 | FileCheck %s
// CHECK: unknown loss `mean_square`; known: cross_entropy
module attributes {train.recipe = {loss = {kind = "mean_square", target = "t"}}} {
  func.func @forward(%x: tensor<8x4xf32> {train.name = "x"}) -> (tensor<8x4xf32> {train.name = "y"}) {
    return %x : tensor<8x4xf32>
  }
}
