//===- Elementwise.td - pointwise ops of one and two operands -------------===//
#ifndef TCC_DIALECT_ELEMENTWISE_TD
#define TCC_DIALECT_ELEMENTWISE_TD
include "compiler/dialect/TrainDialect.td"

class Train_PointwiseOp<string mnemonic, list<Trait> traits = []>
    : Train_PureOp<mnemonic, traits # [Train_Pointwise, Elementwise, DeclareOpInterfaceMethods<Train_Fusible>,
                                       DeclareOpInterfaceMethods<Train_Cost, ["isCheapToRecompute"]>]>;

class Train_Unary<string mnemonic, string text, list<Trait> traits = []>
    : Train_PointwiseOp<mnemonic, traits # [SameOperandsAndResultType, DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let summary = text;
  let arguments = (ins Train_FloatTensor:$input);
  let results = (outs Train_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}
class Train_UnaryAny<string mnemonic, string text, list<Trait> traits = []> : Train_Unary<mnemonic, text, traits> {
  let arguments = (ins Train_Tensor:$input);
  let results = (outs Train_Tensor:$result);
}
class Train_UnaryFlat<string mnemonic, string text>
    : Train_PointwiseOp<mnemonic, [SameOperandsAndResultType, Train_NotDifferentiable]> {
  let summary = text;
  let arguments = (ins Train_Tensor:$input);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def Train_NegOp : Train_UnaryAny<"neg", "−x">;
def Train_AbsOp : Train_UnaryAny<"abs", "|x|; derivative 0 at 0">;
def Train_ExpOp : Train_Unary<"exp", "e^x", [Train_HasNearForm]>;
def Train_LogOp : Train_Unary<"log", "natural logarithm">;
def Train_Expm1Op : Train_Unary<"expm1", "e^x − 1">;
def Train_Log1pOp : Train_Unary<"log1p", "ln(1 + x)">;
def Train_SqrtOp : Train_Unary<"sqrt", "square root">;
def Train_RsqrtOp : Train_Unary<"rsqrt", "1/√x">;
def Train_TanhOp : Train_Unary<"tanh", "hyperbolic tangent", [Train_HasNearForm]>;
def Train_SigmoidOp : Train_Unary<"sigmoid", "1/(1 + e^−x)", [Train_HasNearForm]>;
def Train_SiluOp : Train_Unary<"silu", "x·σ(x)", [Train_HasNearForm]>;
def Train_SoftplusOp : Train_Unary<"softplus", "ln(1 + e^x)", [Train_HasNearForm]>;
def Train_ErfOp : Train_Unary<"erf", "error function", [Train_HasNearForm]>;
def Train_SinOp : Train_Unary<"sin", "sine">;
def Train_CosOp : Train_Unary<"cos", "cosine">;
def Train_TanOp : Train_Unary<"tan", "tangent">;
def Train_AsinOp : Train_Unary<"asin", "arc sine">;
def Train_AcosOp : Train_Unary<"acos", "arc cosine">;
def Train_AtanOp : Train_Unary<"atan", "arc tangent">;
def Train_SinhOp : Train_Unary<"sinh", "hyperbolic sine">;
def Train_CoshOp : Train_Unary<"cosh", "hyperbolic cosine">;
def Train_AsinhOp : Train_Unary<"asinh", "inverse hyperbolic sine">;
def Train_AcoshOp : Train_Unary<"acosh", "inverse hyperbolic cosine">;
def Train_AtanhOp : Train_Unary<"atanh", "inverse hyperbolic tangent">;
def Train_ReluOp : Train_UnaryAny<"relu", "max(x, 0); derivative 0 at 0">;
def Train_GeluOp : Train_Unary<"gelu", "x Φ(x), or its tanh approximation", [Train_HasNearForm]> {
  let arguments = (ins Train_FloatTensor:$input, DefaultValuedAttr<BoolAttr, "false">:$tanh);
  let description = "Hendrycks and Gimpel, arXiv:1606.08415; ONNX Gelu-20 with approximate = none or tanh.";
}
def Train_GeluDerivativeOp : Train_Unary<"gelu_derivative", "the derivative of gelu: Φ(x) + x φ(x), or its tanh approximation's", [Train_HasNearForm]> {
  let arguments = (ins Train_FloatTensor:$input, DefaultValuedAttr<BoolAttr, "false">:$tanh);
  let description = "Takes one exponential and one rounding; composed of other ops it would take several of each.";
}
def Train_FloorOp : Train_UnaryFlat<"floor", "largest integer not above x">;
def Train_CeilOp : Train_UnaryFlat<"ceil", "smallest integer not below x">;
def Train_RoundOp : Train_UnaryFlat<"round", "nearest integer, ties to even">;
def Train_SignOp : Train_UnaryFlat<"sign", "−1, 0 or 1">;
def Train_NotOp : Train_UnaryFlat<"not", "bitwise not; logical on i1">;

def Train_StopGradientOp : Train_PointwiseOp<"stop_gradient", [SameOperandsAndResultType, Train_NotDifferentiable]> {
  let summary = "identity that stops the gradient";
  let description = [{
    PyTorch's `detach`. `source` names the mark: an exporter's op, a node of domain `tcc`, or a key of the recipe. Passes
    before differentiate keep the op, except prune-stops; elide-stops removes it right after.
  }];
  let arguments = (ins Train_FloatTensor:$input, DefaultValuedAttr<StrAttr, "\"\"">:$source);
  let results = (outs Train_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

class Train_Predicate<string mnemonic, string text> : Train_PointwiseOp<mnemonic, [Train_NotDifferentiable]> {
  let summary = text;
  let arguments = (ins Train_FloatTensor:$input);
  let results = (outs Train_BoolTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}
def Train_IsNanOp : Train_Predicate<"is_nan", "true where x is NaN">;
def Train_IsFiniteOp : Train_Predicate<"is_finite", "true where x is neither infinite nor NaN">;

class Train_Binary<string mnemonic, string text, list<Trait> traits = []>
    : Train_PointwiseOp<mnemonic, traits # [SameOperandsAndResultType, DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let summary = text;
  let arguments = (ins Train_Tensor:$lhs, Train_Tensor:$rhs);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}
class Train_BinaryFlat<string mnemonic, string text, list<Trait> traits = []>
    : Train_PointwiseOp<mnemonic, traits # [SameOperandsAndResultType, Train_NotDifferentiable]> {
  let summary = text;
  let arguments = (ins Train_Tensor:$lhs, Train_Tensor:$rhs);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}
def Train_AddOp : Train_Binary<"add", "a + b", [Commutative]>;
def Train_SubOp : Train_Binary<"sub", "a − b">;
def Train_MulOp : Train_Binary<"mul", "a · b", [Commutative]>;
def Train_DivOp : Train_Binary<"div", "a / b; integers truncate towards zero">;
def Train_PowOp : Train_Binary<"pow", "a^b; floating point">;
def Train_MaxOp : Train_Binary<"max", "maximum; NaN propagates; a tie halves the gradient, as PyTorch's maximum">;
def Train_MinOp : Train_Binary<"min", "minimum; NaN propagates; a tie halves the gradient">;
def Train_RemOp : Train_Binary<"rem", "remainder with the sign of the dividend (C's fmod and %)">;
def Train_AndOp : Train_BinaryFlat<"and", "bitwise and; logical on i1", [Commutative]>;
def Train_OrOp : Train_BinaryFlat<"or", "bitwise or; logical on i1", [Commutative]>;
def Train_XorOp : Train_BinaryFlat<"xor", "bitwise exclusive or; logical on i1", [Commutative]>;
def Train_ShiftLeftOp : Train_BinaryFlat<"shift_left", "a·2^b modulo 2^width; integers; 0 where b is not in [0, width)">;
def Train_ShiftRightOp : Train_BinaryFlat<"shift_right", "⌊a/2^b⌋; integers; −1 or 0 where b is not in [0, width)">;

def Train_CompareKind : I32EnumAttr<"CompareKind", "comparison", [
    I32EnumAttrCase<"eq", 0>, I32EnumAttrCase<"ne", 1>, I32EnumAttrCase<"lt", 2>, I32EnumAttrCase<"le", 3>,
    I32EnumAttrCase<"gt", 4>, I32EnumAttrCase<"ge", 5>]> { let cppNamespace = "::tcc::train"; }

def Train_CompareOp : Train_PointwiseOp<"compare", [SameTypeOperands, Train_NotDifferentiable]> {
  let summary = "ordered comparison; with NaN only ne holds";
  let arguments = (ins Train_CompareKind:$kind, Train_Tensor:$lhs, Train_Tensor:$rhs);
  let results = (outs Train_BoolTensor:$result);
  let assemblyFormat = "$kind $lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)";
}
def Train_SelectOp : Train_PointwiseOp<"select",
    [DeclareOpInterfaceMethods<Train_Differentiable>, AllTypesMatch<["onTrue", "onFalse", "result"]>]> {
  let summary = "onTrue where the condition holds, else onFalse";
  let arguments = (ins Train_BoolTensor:$condition, Train_Tensor:$onTrue, Train_Tensor:$onFalse);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$condition `,` $onTrue `,` $onFalse attr-dict `:` type($condition) `,` type($result)";
}
def Train_CastOp : Train_PointwiseOp<"cast", [DeclareOpInterfaceMethods<Train_Differentiable>]> {
  let summary = "numeric conversion: to nearest even, float to integer truncates, to i1 is x ≠ 0";
  let arguments = (ins Train_Tensor:$input);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}
def Train_BitCastOp : Train_PointwiseOp<"bitcast", [Train_NotDifferentiable]> {
  let summary = "the same bits under another element type of as many bytes; a byte that becomes i1 is x ≠ 0";
  let arguments = (ins Train_Tensor:$input);
  let results = (outs Train_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}
#endif // TCC_DIALECT_ELEMENTWISE_TD
