//===- SameDeclarations.h - our declarations beside a library's own ------===//
#ifndef TCC_TEST_UNIT_RUNTIME_SAMEDECLARATIONS_H
#define TCC_TEST_UNIT_RUNTIME_SAMEDECLARATIONS_H

#include <type_traits>

/// Whether a call passes two types in the same way. Handles are pointers to different, opaque structs.
template <typename Ours, typename Real> constexpr bool alike() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Real>) {
    using Target = std::remove_pointer_t<Ours>;
    using RealTarget = std::remove_pointer_t<Real>;
    if constexpr (std::is_const_v<Target> != std::is_const_v<RealTarget>)
      return false;
    else if constexpr (std::is_class_v<Target> || std::is_class_v<RealTarget>)
      return std::is_class_v<Target> && std::is_class_v<RealTarget>;
    else
      return alike<std::remove_cv_t<Target>, std::remove_cv_t<RealTarget>>();
  } else if constexpr (std::is_enum_v<Ours>) {
    return std::is_enum_v<Real> && sizeof(Ours) == sizeof(Real);
  } else if constexpr (std::is_class_v<Ours>) { // passed by value
    return std::is_class_v<Real> && sizeof(Ours) == sizeof(Real) && alignof(Ours) == alignof(Real);
  } else {
    return std::is_same_v<Ours, Real>;
  }
}
template <typename Ours, typename Real> struct Signature : std::false_type {};
template <typename OurStatus, typename... Ours, typename RealStatus, typename... Real>
struct Signature<OurStatus (*)(Ours...), RealStatus (*)(Real...)> {
  static constexpr bool compare() {
    if constexpr (sizeof...(Ours) == sizeof...(Real))
      return alike<OurStatus, RealStatus>() && (alike<Ours, Real>() && ...);
    else
      return false;
  }
  static constexpr bool value = compare();
};

#endif // TCC_TEST_UNIT_RUNTIME_SAMEDECLARATIONS_H
