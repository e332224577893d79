//===- ScalarFunctions.h - transcendental functions from arithmetic -*- C++ -*-===//
//
// The implementations of ElementwiseMath.h, over any `T` with the operators of `Lane`: kernels build IR with them, a
// test runs them on the host, over every f32. No branches, no tables: both sides of a condition are computed, then
// selected.
//
// Method: Cody and Waite's range reduction with fused multiply-adds, then polynomials: Moshier's Cephes (exp, tanh,
// sin, cos in f32; atan in f64), Sun's fdlibm (log, log1p, erf, sin, cos in f64), Juffa's erff, Taylor's series where
// it is short enough.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_SCALARFUNCTIONS_H
#define TCC_DIALECT_SCALARFUNCTIONS_H

#include <cmath>
#include <initializer_list>
#include <limits>

namespace tcc::train::scalar {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Horner's rule, highest coefficient first.
template <typename T> T polynomial(T x, std::initializer_list<double> coefficients) {
  auto next = coefficients.begin();
  T sum = x.like(*next++);
  for (; next != coefficients.end(); ++next)
    sum = sum.fma(x, x.like(*next));
  return sum;
}

template <typename T> T clamp(T x, double low, double high) { // NaN stays
  x = greater(x, high).select(x.like(high), x);
  return less(x, low).select(x.like(low), x);
}

/// 2^n for an integer n whose power is a normal number.
template <typename T> T powerOfTwo(T n) {
  return n.width() == 64 ? (n + n.likeInt(1023)).shiftLeft(52).asFloat() : (n + n.likeInt(127)).shiftLeft(23).asFloat();
}

/// x·2^n in two steps, so that subnormal results are right.
template <typename T> T scale(T x, T n) {
  T half = n.shiftRight(1);
  return x * powerOfTwo(half) * powerOfTwo(n - half);
}

/// Nearest integer to x·factor as a float, and as an integer: adding 1.5·2^(mantissa bits) shifts the fraction out.
template <typename T> struct Rounded {
  T value, integer;
};
template <typename T> Rounded<T> roundProduct(T x, double factor) {
  T magic = x.like(x.isDouble() ? 0x1.8p52 : 0x1.8p23f);
  T shifted = x.fma(x.like(factor), magic);
  return {shifted - magic, shifted.bits() - magic.bits()};
}

/// e^(x + tail) = 2^n·(1 + rest), where the tail is small compared to x. The low `bits` are the integer n + `steps`
/// times the exponent's bias, so that shifting them into the exponent gives a power of two.
template <typename T> struct ReducedExp {
  T rest, bits;
  /// 2^n from one step.
  T power() const { return bits.shiftLeft(bits.width() == 64 ? 52 : 23).asFloat(); }
};
template <typename T> ReducedExp<T> reduceExp(T x, const T *tail, int64_t steps = 1) {
  bool wide = x.isDouble();
  T magic = x.like(wide ? 0x1.8p52 + double(1023 * steps) : 0x1.8p23 + double(127 * steps));
  T shifted = x.fma(x.like(1.44269504088896340736), magic), n = shifted - magic;
  T r = wide ? n.fma(x.like(-6.93147180369123816490e-01), x) : n.fma(x.like(-0.693359375), x);
  r = wide ? n.fma(x.like(-1.90821492927058770002e-10), r) : n.fma(x.like(2.12194440e-4), r);
  if (tail)
    r = r + *tail;
  T p = wide
            ? polynomial(r, {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                             1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5})
            : polynomial(r, {1.38145405034e-3, 8.36874547214e-3, 4.16683908056e-2, 1.66665203960e-1, 4.99999934320e-1});
  return {(r * r).fma(p, r), shifted.bits()};
}
template <typename T> T expWithTail(T x, const T *tail) {
  x = x.isDouble() ? clamp(x, -746, 710) : clamp(x, -104.5, 89);
  // 2^n in two factors, both normal numbers, so that subnormal results are right.
  ReducedExp<T> parts = reduceExp(x, tail, 2), half{parts.rest, parts.bits.shiftRight(1)};
  ReducedExp<T> otherHalf{parts.rest, parts.bits - half.bits};
  return (parts.rest + 1.0) * half.power() * otherHalf.power();
}
template <typename T> T exp(T x) { return expWithTail<T>(x, nullptr); }

/// 2^y in f32 for y in [−127.4, 128.4], to 1.4 ulp; 0 where that is less than 2^−126.5, ∞ above 2^127.5.
template <typename T> T powerOfTwoSingle(T y) {
  T magic = y.like(0x1.8p23 + 127), shifted = y + magic, f = y - (shifted - magic);
  T p = polynomial(f, {1.53533627172e-4, 1.33988750294e-3, 9.61843735964e-3, 5.55033246965e-2, 2.40226479136e-1,
                       6.93147202856e-1, 1.0});
  return p * shifted.bits().shiftLeft(23).asFloat();
}

/// 2^n·rest + (2^n − 1); for very negative x it is −1, for large x it is e^x.
template <typename T> T expm1(T x) {
  double least = x.isDouble() ? -50 : -30, large = x.isDouble() ? 50 : 30;
  ReducedExp<T> parts = reduceExp<T>(clamp(x, least, large), nullptr);
  T power = parts.power(), near = parts.rest.fma(power, power - 1.0);
  return equal(x, 0).select(x, greater(x, large).select(exp(x), near));
}

/// x = 2^exponent·(1 + fraction) with 1 + fraction in [√½, √2); for normal x > 0.
template <typename T> struct Decomposed {
  T exponent, fraction;
};
template <typename T> Decomposed<T> decompose(T x) {
  bool wide = x.isDouble();
  T bits = x.bits();
  int64_t one = wide ? 0x3ff0000000000000 : 0x3f800000, half = wide ? 0x3fe6a09e667f3bcd : 0x3f3504f3;
  int64_t mask = wide ? 0x000fffffffffffff : 0x7fffff;
  T shifted = bits + bits.likeInt(one - half);
  T exponent = shifted.shiftRightUnsigned(wide ? 52 : 23) - bits.likeInt(wide ? 1023 : 127);
  T mantissa = ((shifted & bits.likeInt(mask)) + bits.likeInt(half)).asFloat();
  return {exponent.toFloat(), mantissa - 1.0};
}

/// ln(1 + f) + k·ln 2 + correction, |f| small: fdlibm's series in s = f/(2 + f).
template <typename T> T logSeries(T f, T k, T correction) {
  bool wide = f.isDouble();
  T s = f / (f + 2.0), z = s * s, w = z * z, halfSquare = 0.5 * f * f;
  T odd = wide ? w * polynomial(w, {1.531383769920937332e-01, 2.222219843214978396e-01, 3.999999999940941908e-01})
               : w * polynomial(w, {0.24279078841, 0.40000972152});
  T even = wide ? z * polynomial(w, {1.479819860511658591e-01, 1.818357216161805012e-01, 2.857142874366239149e-01,
                                     6.666666666666735130e-01})
                : z * polynomial(w, {0.28498786688, 0.66666662693});
  T low = k * (wide ? 1.90821492927058770002e-10 : 9.0580006145e-06) + correction;
  T high = k * (wide ? 6.93147180369123816490e-01 : 6.9313812256e-01);
  return s * (halfSquare + odd + even) + low - halfSquare + f + high;
}

template <typename T> T smallestNormal(T x) { return x.like(x.isDouble() ? 0x1p-1022 : 0x1p-126); }

template <typename T> T log(T x) {
  bool wide = x.isDouble();
  T subnormal = less(x, smallestNormal(x));
  double shift = wide ? 54 : 25;
  Decomposed<T> parts = decompose(subnormal.select(x * std::ldexp(1.0, int(shift)), x));
  T k = subnormal.select(parts.exponent - shift, parts.exponent);
  T result = logSeries(parts.fraction, k, x.like(0));
  result = equal(x, 0).select(x.like(-kInfinity), less(x, 0).select(x.like(kNaN), result));
  return less(x, kInfinity).select(result, x); // +∞ and NaN
}

template <typename T> T log1p(T x) {
  // Near 0 the series uses x itself; elsewhere the rounding error of 1 + x is added as a correction.
  T near = greater(x, -0.2928) & less(x, 0.4142), u = near.select(x.like(1), x + 1.0);
  Decomposed<T> parts = decompose(u);
  T lost = greater(x, 1).select(1.0 - (u - x), x - (u - 1.0)) / u;
  T zero = x.like(0);
  T result = logSeries(near.select(x, parts.fraction), near.select(zero, parts.exponent), near.select(zero, lost));
  result = equal(x, -1).select(x.like(-kInfinity), less(x, -1).select(x.like(kNaN), result));
  result = less(x.abs(), x.isDouble() ? 0x1p-54 : 0x1p-25).select(x, result);
  return less(x, kInfinity).select(result, x);
}

template <typename T> T tanh(T x) {
  T a = x.abs(), z = x * x;
  T small =
      x.isDouble()
          ? x + x * z *
                    (polynomial(z, {-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3}) /
                     polynomial(z, {1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3}))
          : (x * z).fma(polynomial(z, {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1,
                                       -3.33332819422e-1}),
                        x);
  T large = (1.0 - 2.0 / (exp(a + a) + 1.0)).copySign(x);
  return less(a, 0.625).select(small.copySign(x), large);
}

template <typename T> T sigmoid(T x) {
  // e^−|x| does not overflow, and keeps the small result for a very negative x.
  T e = exp(-x.abs()), negative = less(x, 0), q = negative.select(e, x.like(1)) / (1.0 + e);
  // e/(1 + e) = e − e·q, where errors of q weigh less.
  return negative.select((-e).fma(q, e), q);
}

/// ln(1 + e^x) without overflow.
template <typename T> T softplus(T x) { return greater(x, 0).select(x, x.like(0)) + log1p(exp(-x.abs())); }

template <typename T> T erfSingle(T x) {
  T t = clamp(x.abs(), 0, 4.25), s = t * t;
  T r = t.like(-1.72853470e-5).fma(t, t.like(3.83197126e-4)), u = t.like(-3.88396438e-3).fma(t, t.like(2.42546219e-2));
  r = r.fma(s, u)
          .fma(t, t.like(-1.06777877e-1))
          .fma(t, t.like(-6.34846687e-1))
          .fma(t, t.like(-1.28717512e-1))
          .fma(t, -t);
  T large = (1.0 - exp(r)).copySign(x);
  T p = polynomial(s, {-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1});
  return greater(x.abs(), 0.927734375).select(large, p.fma(x, x));
}

template <typename T> T erfDouble(T x) {
  T a = clamp(x.abs(), 0, 6.5), z = a * a;
  T tiny = polynomial(z, {-2.37630166566501626084e-05, -5.77027029648944159157e-03, -2.84817495755985104766e-02,
                          -3.25042107247001499370e-01, 1.28379167095512558561e-01}) /
           polynomial(z, {-3.96022827877536812320e-06, 1.32494738004321644526e-04, 5.08130628187576562776e-03,
                          6.50222499887672944485e-02, 3.97917223959155352819e-01, 1.0});
  T s = a - 1.0;
  T middle =
      8.45062911510467529297e-01 +
      polynomial(s, {-2.16637559486879084300e-03, 3.54783043256182359371e-02, -1.10894694282396677476e-01,
                     3.18346619901161753674e-01, -3.72207876035701323847e-01, 4.14856118683748331666e-01,
                     -2.36211856075265944077e-03}) /
          polynomial(s, {1.19844998467991074170e-02, 1.36370839120290507362e-02, 1.26171219808761642112e-01,
                         7.18286544141962662868e-02, 5.40397917702171048937e-01, 1.06420880400844228286e-01, 1.0});
  T w = 1.0 / z;
  T near = polynomial(w, {-9.81432934416914548592e+00, -8.12874355063065934246e+01, -1.84605092906711035994e+02,
                          -1.62396669462573470355e+02, -6.23753324503260060396e+01, -1.05586262253232909814e+01,
                          -6.93858572707181764372e-01, -9.86494403484714822705e-03}) /
           polynomial(w, {-6.04244152148580987438e-02, 6.57024977031928170135e+00, 1.08635005541779435134e+02,
                          4.29008140027567833386e+02, 6.45387271733267880336e+02, 4.34565877475229228821e+02,
                          1.37657754143519042600e+02, 1.96512716674392571292e+01, 1.0});
  T far = polynomial(w, {-4.83519191608651397019e+02, -1.02509513161107724954e+03, -6.37566443368389627722e+02,
                         -1.60636384855821916062e+02, -1.77579549177547519889e+01, -7.99283237680523006574e-01,
                         -9.86494292470009928597e-03}) /
          polynomial(w, {-2.24409524465858183362e+01, 4.74528541206955367215e+02, 2.55305040643316442583e+03,
                         3.19985821950859553908e+03, 1.53672958608443695994e+03, 3.25792512996573918826e+02,
                         3.03380607434824582924e+01, 1.0});
  T tail = 1.0 - exp(less(a, 1 / 0.35).select(near, far) - z - 0.5625) / a;
  T large = less(a, 1.25).select(middle, tail).copySign(x);
  return less(x.abs(), 0.84375).select(x + x * tiny, isNan(x).select(x, large));
}
template <typename T> T erf(T x) { return x.isDouble() ? erfDouble(x) : erfSingle(x); }

/// The normal distribution at x, for gelu and its derivative: √(2π)·φ and Φ. In f32 Φ(−a) is φ(a) times a polynomial
/// that approximates Mills' ratio, best where φ is large: within 1.7e-8 of Φ.
template <typename T> struct NormalDistribution {
  T x, density, cumulative; ///< x, clamped where Φ is 0 or 1
};
template <typename T> NormalDistribution<T> normalDistribution(T x) {
  if (x.isDouble()) {
    x = clamp(x, -39, 39);
    return {x, exp(-0.5 * x * x), 0.5 * (1.0 + erf(x * 0.70710678118654752440))};
  }
  x = clamp(x, -13.26, 13.26); // beyond, 2^y is 0
  T a = x.abs(), near = greater(a, 5.3).select(x.like(5.3), a),
    density = powerOfTwoSingle(x * x * -0.72134752044448170368);
  T tail = density * polynomial(near, {-3.15528928468e-7, 7.70855540356e-6, -8.47695805684e-5, 5.63648301152e-4,
                                       -2.59008393134e-3, 9.00384730898e-3, -2.54718309023e-2, 6.19239522361e-2,
                                       -1.32805799727e-1, 2.49972576895e-1, -3.98940602679e-1, 4.99999983053e-1});
  return {x, density, less(x, 0).select(tail, 1.0 - tail)};
}

inline constexpr double kTwiceSqrtTwoOverPi = 1.59576912160573071176, kGeluCubic = 0.044715;

/// x·Φ(x); by tanh, x·(1 + tanh(v/2))/2 = x·σ(v) with v = 2√(2/π)·(x + 0.044715x³).
template <typename T> T gelu(T x, bool tanh) {
  if (!tanh)
    return x * normalDistribution(x).cumulative;
  if (x.isDouble())
    return x * sigmoid(kTwiceSqrtTwoOverPi * x * (x * x).fma(x.like(kGeluCubic), x.like(1)));
  // σ(v) from e^−|v|: on a GPU the reciprocal of a number in [1, 2] is cheaper than the quotient x/(1 + e^−v).
  constexpr double factor = -kTwiceSqrtTwoOverPi * 1.44269504088896340736;
  T y = x.abs() * (x * x).fma(x.like(factor * kGeluCubic), x.like(factor));
  T e = powerOfTwoSingle(less(y, -127).select(y.like(-127), y)), q = 1.0 / (1.0 + e);
  return x * less(x, 0).select(e * q, q);
}

/// Φ(x) + x·φ(x); by tanh, σ(v) + x·v′·σ(v)·(1 − σ(v)).
template <typename T> T geluDerivative(T x, bool tanh) {
  if (!tanh) {
    NormalDistribution<T> normal = normalDistribution(x);
    return (normal.x * normal.density).fma(x.like(0.39894228040143267794), normal.cumulative);
  }
  // Beyond these limits the second term underflows; clamping prevents overflow.
  x = x.isDouble() ? clamp(x, -40, 40) : clamp(x, -10.03, 10.03);
  T a = x.abs(), square = x * x, e = a;
  if (x.isDouble()) {
    e = exp(-kTwiceSqrtTwoOverPi * a * square.fma(x.like(kGeluCubic), x.like(1)));
  } else {
    constexpr double factor = -kTwiceSqrtTwoOverPi * 1.44269504088896340736;
    e = powerOfTwoSingle(a * square.fma(x.like(factor * kGeluCubic), x.like(factor)));
  }
  // e = e^−|v|, so that 1 − σ(|v|) is e·q without cancellation.
  T q = 1.0 / (1.0 + e), other = e * q;
  T slope = square.fma(x.like(3 * kTwiceSqrtTwoOverPi * kGeluCubic), x.like(kTwiceSqrtTwoOverPi));
  return (x * slope).fma(other * q, less(x, 0).select(other, q));
}

/// sin x, or cos x where `shift` is 1: x = n·π/2 + r, |r| ≤ π/4. The reduction is in f64 for both types.
template <typename T> T sinOrCos(T x, int64_t shift) {
  bool wide = x.isDouble();
  T d = wide ? x : x.toDouble();
  Rounded<T> n = roundProduct(d, 0.63661977236758134308);
  T r = n.value.fma(d.like(-1.57079632679489655800), d);
  r = n.value.fma(d.like(-6.12323399573676603587e-17), r);
  r = n.value.fma(d.like(1.49738490485916983e-33), r);
  T quadrant = n.integer + n.integer.likeInt(shift), one = quadrant.likeInt(1), zero = quadrant.likeInt(0);
  T useCos = equal(quadrant & one, one), negate = equal(quadrant & quadrant.likeInt(2), zero);
  r = wide ? r : r.toSingle();
  T z = r * r;
  T sine = wide ? polynomial(z, {1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
                                 -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01})
                : polynomial(z, {-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1});
  sine = (z * r).fma(sine, r);
  T cosine = wide ? polynomial(z, {-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
                                   2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02})
                  : polynomial(z, {2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2});
  cosine = (z * z).fma(cosine, 1.0 - 0.5 * z);
  T value = useCos.select(cosine, sine);
  value = negate.select(value, -value);
  if (shift == 0)
    value = equal(x, 0).select(x, value); // −0 stays −0
  return less(x.abs(), 0x1p51).select(value, x.like(kNaN));
}

/// |x| is reduced to t = x, (x − 1)/(x + 1) or −1/x, which subtracts 0, π/4 or π/2 from the result; then t + t³·(a
/// polynomial in t², or a quotient of two). The one for f32 interpolates at the Chebyshev points of t² ≤ 1/4: above
/// 1/2, x − 1 is exact.
template <typename T> T atan(T x) {
  bool wide = x.isDouble();
  T a = x.abs(), one = x.like(1);
  T large = greater(a, 2.41421356237309504880), middle = greater(a, wide ? 0.66 : 0.5); // tan 3π/8
  T t = large.select(-one, middle.select(a - 1.0, a)) / large.select(a, middle.select(a + 1.0, one)), z = t * t;
  T tail =
      wide ? z * (polynomial(z, {-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
                                 -1.228866684490136173410e2, -6.485021904942025371773e1}) /
                  polynomial(z, {1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
                                 4.853903996359136964868e2, 1.945506571482613964425e2}))
           : z * polynomial(z, {4.22568596302e-2, -8.23550576364e-2, 1.10068806813e-1, -1.42798010958e-1,
                                1.99998752498e-1, -3.33333329015e-1});
  T rest = large.select(x.like(1.57079632679489661923), middle.select(x.like(0.78539816339744830962), x.like(0)));
  double half = wide ? 6.123233995736765886e-17 : -4.37113882867379e-8; // rounding error of π/2
  T lost = large.select(x.like(half), middle.select(x.like(half / 2), x.like(0)));
  T sum = rest + (t.fma(tail, t) + lost);
  return sum.copySign(x);
}

/// A number as an unevaluated sum.
template <typename T> struct Pair {
  T high, low;
};
template <typename T> Pair<T> fastTwoSum(T x, T y) { // |x| ≥ |y|
  T sum = x + y;
  return {sum, y - (sum - x)};
}
template <typename T> Pair<T> twoSum(T x, T y) {
  T sum = x + y, part = sum - x;
  return {sum, (x - (sum - part)) + (y - part)};
}

/// Evaluates an f64 function for f32, too: rare functions need no f32 implementation.
template <typename T, typename Function> T inDouble(T x, Function function) {
  return x.isDouble() ? function(x) : function(x.toDouble()).toSingle();
}

template <typename T> T tan(T x) {
  return inDouble(x, [](T x) {
    T ratio = sinOrCos(x, 0) / sinOrCos(x, 1);
    return equal(x, 0).select(x, ratio);
  });
}

/// (asin √z)/√z − 1 for z ≤ 1/4.
template <typename T> T asinTail(T z) {
  return z *
         polynomial(z, {3.47933107596021167570e-05, 7.91534994289814532176e-04, -4.00555345006794114027e-02,
                        2.01212532134862925881e-01, -3.25565818622400915405e-01, 1.66666666666666657415e-01}) /
         polynomial(z, {7.70381505559019352791e-02, -6.88283971605453293030e-01, 2.02094576023350569471e+00,
                        -2.40339491173441421878e+00, 1.0});
}
/// 2·asin √((1 − a)/2) for a in [1/2, 1], which is acos a; corrects the root's rounding error.
template <typename T> T acosNearOne(T a) {
  T z = (1.0 - a) * 0.5, root = z.sqrt(), lost = (-root).fma(root, z) / (root + root);
  lost = equal(z, 0).select(z, lost);
  return 2.0 * (root + root.fma(asinTail(z), lost));
}
inline constexpr double kHalfPi = 1.57079632679489655800, kHalfPiLost = 6.12323399573676603587e-17;

template <typename T> T asin(T x) {
  return inDouble(x, [](T x) {
    T a = x.abs(), near = x.fma(asinTail(x * x), x);
    T far = (x.like(kHalfPi) - (acosNearOne(a) - kHalfPiLost)).copySign(x);
    return less(a, 0.5).select(equal(x, 0).select(x, near), far);
  });
}
template <typename T> T acos(T x) {
  return inDouble(x, [](T x) {
    T a = x.abs(), middle = kHalfPi - (x - (kHalfPiLost - x * asinTail(x * x))), near = acosNearOne(a);
    T far = 2.0 * kHalfPi - (near - 2.0 * kHalfPiLost);
    return less(a, 0.5).select(middle, less(x, 0).select(far, near));
  });
}

/// e^a/2, which overflows only where sinh and cosh do.
template <typename T> T halfExp(T a) {
  a = clamp(a, 0, 800); // ∞ has no low part
  Pair<T> shifted = twoSum(a, a.like(-6.93147180559945286227e-01));
  T tail = shifted.low + -2.31904681384629955842e-17;
  return expWithTail(shifted.high, &tail);
}
template <typename T> T sinh(T x) {
  return inDouble(x, [](T x) {
    T a = x.abs(), half = halfExp(a), below = less(a, 1).select(a, a.like(0)), e = expm1(below);
    T near = 0.5 * (e + e / (e + 1.0)), far = half - 0.25 / half;
    return less(a, 1).select(near, far).copySign(x);
  });
}
template <typename T> T cosh(T x) {
  return inDouble(x, [](T x) {
    T half = halfExp(x.abs());
    return half + 0.25 / half;
  });
}

/// fdlibm's method: log1p(a + a²/(1 + √(a² + 1))); far from 0, ln 2a and a correction.
template <typename T> T asinh(T x) {
  return inDouble(x, [](T x) {
    T a = x.abs(), huge = greater(a, 0x1p28), far = greater(a, 2), one = x.like(1);
    T safe = huge.select(one, a), square = safe * safe, root = (square + 1.0).sqrt();
    T logarithm = log(huge.select(a, 2.0 * safe + 1.0 / (safe + root)));
    T result =
        far.select(huge.select(logarithm + 6.93147180559945286227e-01, logarithm), log1p(safe + square / (root + 1.0)));
    return equal(x, 0).select(x, result.copySign(x));
  });
}
template <typename T> T acosh(T x) {
  return inDouble(x, [](T x) {
    T huge = greater(x, 0x1p28), far = greater(x, 2), safe = huge.select(x.like(4), x), t = safe - 1.0;
    T logarithm = log(huge.select(x, 2.0 * safe - 1.0 / (safe + (safe * safe - 1.0).sqrt())));
    T near = log1p(t + (2.0 * t + t * t).sqrt());
    return far.select(huge.select(logarithm + 6.93147180559945286227e-01, logarithm),
                      less(x, 1).select(x.like(kNaN), near));
  });
}
template <typename T> T atanh(T x) {
  return inDouble(x, [](T x) {
    T a = x.abs(), twice = a + a, rest = 1.0 - a;
    T result = 0.5 * log1p(less(a, 0.5).select(twice + twice * a / rest, twice / rest));
    return equal(x, 0).select(x, result.copySign(x));
  });
}

/// ln x to about 65 bits, x > 0 and finite: 2·atanh(s), s = f/(2 + f), whose first two terms are kept as pairs.
template <typename T> Pair<T> logPair(T x) {
  T subnormal = less(x, smallestNormal(x));
  Decomposed<T> parts = decompose(subnormal.select(x * 0x1p54, x));
  T k = subnormal.select(parts.exponent - 54.0, parts.exponent), f = parts.fraction;
  Pair<T> d = twoSum(x.like(2), f);
  T s = f / d.high, sLow = ((-s).fma(d.high, f) - s * d.low) / d.high;
  T z = s * s, zLow = s.fma(s, -z) + 2.0 * s * sLow;
  T tail = z * polynomial(z, {2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5});
  Pair<T> q = fastTwoSum(x.like(2.0 / 3), tail);
  q.low = q.low + x.like(3.7007434154171886e-17); // 2/3 − the double 2/3
  T sz = s * z, szLow = s.fma(z, -sz) + s * zLow + sLow * z;
  T cubic = sz * q.high, cubicLow = sz.fma(q.high, -cubic) + sz * q.low + szLow * q.high;
  Pair<T> sum = fastTwoSum(s + s, cubic);
  sum.low = sum.low + (sLow + sLow + cubicLow);
  // k·(the first 32 bits of ln 2) is exact.
  T high = k * 6.93147180369123816490e-01, low = k * 1.90821492927058770002e-10;
  T lowRest = k.fma(x.like(1.90821492927058770002e-10), -low) + k * -1.0386900539998183e-26;
  Pair<T> withHigh = twoSum(high, sum.high), withLow = twoSum(withHigh.high, low);
  Pair<T> result = twoSum(withLow.high, withHigh.low + withLow.low + sum.low + lowRest);
  return result;
}

/// a^y for a > 0, both finite, in f64: e^(y·ln a) with the product as a pair.
template <typename T> T powCore(T a, T y, bool single) {
  if (single)
    return exp(y * log(a));
  Pair<T> l = logPair(a);
  T p = y * l.high, low = y.fma(l.high, -p) + y * l.low;
  low = less(p.abs(), 1000).select(low, low.like(0));
  return expWithTail(p, &low);
}

/// C's pow in f64; `single`: to the accuracy of f32.
template <typename T> T powDouble(T x, T y, bool single) {
  T a = x.abs(), zero = x.like(0), one = x.like(1), infinity = x.like(kInfinity);
  T yNegative = less(y, 0);
  T aOrdinary = greater(a, 0) & less(a, kInfinity), yOrdinary = less(y.abs(), kInfinity);
  T result = powCore(aOrdinary.select(a, one), yOrdinary.select(y, one), single);
  result = equal(a, 0).select(yNegative.select(infinity, zero), result);
  result = equal(a, kInfinity).select(yNegative.select(zero, infinity), result);
  T grows = (less(a, 1) & yNegative) | (greater(a, 1) & greater(y, 0));
  T atInfinity = equal(a, 1).select(one, grows.select(infinity, zero));
  result = equal(y.abs(), kInfinity).select(atInfinity, result);
  // Odd powers of negative numbers are negative; powers with a fractional y are not real.
  T half = y * 0.5, whole = equal(y.floor(), y), odd = whole & isFalse(equal(half.floor(), half));
  T negative = equal(one.copySign(x), -1);
  result = (negative & odd).select(-result, result);
  result = (less(x, 0) & isFalse(whole) & yOrdinary & aOrdinary).select(x.like(kNaN), result);
  result = (isNan(x) | isNan(y)).select(x + y, result);
  return (equal(y, 0) | equal(x, 1)).select(one, result);
}
template <typename T> T pow(T x, T y) {
  return x.isDouble() ? powDouble(x, y, false) : powDouble(x.toDouble(), y.toDouble(), true).toSingle();
}

/// Rounds f64 to f32 and sets the last bit of an inexact result, so that rounding it again to fewer bits is correct.
template <typename T> T roundToOdd(T x) {
  T near = x.toSingle(), back = near.toDouble(), bits = near.bits();
  T even = equal(bits & bits.likeInt(1), bits.likeInt(0)), inexact = less(back, x) | less(x, back);
  T step = greater(back.abs(), x.abs()).select(bits.likeInt(-1), bits.likeInt(1));
  return (even & inexact).select(bits + step, bits).asFloat();
}

} // namespace tcc::train::scalar

#endif // TCC_DIALECT_SCALARFUNCTIONS_H
