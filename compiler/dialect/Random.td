//===- Random.td - counter-based random numbers ----------------------------===//
#ifndef TCC_DIALECT_RANDOM_TD
#define TCC_DIALECT_RANDOM_TD
include "compiler/dialect/TrainDialect.td"

/// Seed (low and high word), update, micro-batch.
def Train_RandomKey : StaticShapeTensorOf<[UI32]>;

def Train_RandomKeyOp : Train_Op<"random_key", [Pure]> {
  let summary = "the key of random numbers in this call of the entry: seed (two words), update, micro-batch";
  let description = "build-update turns it into an argument of the entry, which the runtime fills before each call.";
  let results = (outs Train_RandomKey:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Train_RandomKind : I32EnumAttr<"RandomKind", "distribution", [
    I32EnumAttrCase<"bits", 0>, I32EnumAttrCase<"uniform", 1>, I32EnumAttrCase<"normal", 2>]> {
  let cppNamespace = "::tcc::train";
}
def Train_RandomOp : Train_PureOp<"random", [Train_NotDifferentiable, DeclareOpInterfaceMethods<Train_Fusible>,
                                             DeclareOpInterfaceMethods<Train_Cost, ["isCheapToRecompute"]>]> {
  let summary = "32 random bits, a uniform number in [0, 1) or a standard normal one for each element";
  let description = [{
    Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): key seed ⊕ `id`, counter (index of
    the element in row-major order, update, micro-batch). A number depends on nothing else: not on the kernel that draws it,
    on tiles or threads, nor on how often it is drawn. `id` comes from the ONNX node's name and is copied by clones, so a
    mask is drawn again where it is needed again and need not be stored.

    uniform has as many bits as the type's significand (53, 24, 11, 8), normal is Box and Muller's √(−2 ln u)·cos 2πv.
  }];
  let arguments = (ins Train_RandomKind:$kind, Train_RandomKey:$key, I64Attr:$id);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$kind $key `id` `=` $id attr-dict `:` type($key) `->` type($result)";
  let hasVerifier = 1;
}
#endif // TCC_DIALECT_RANDOM_TD
