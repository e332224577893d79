//===- WidenRows.h - computing on rows with something behind their end -----===//
#ifndef TCC_LAYOUTS_WIDENROWS_H
#define TCC_LAYOUTS_WIDENROWS_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {

/// `slice` cuts rows (its last dimension) off at their end; zeros are behind it, or NaN in a row that holds one or an
/// infinity. Ops that work element by element on the cut rows work on whole ones instead, as far as that goes:
/// reductions along rows count what is behind the end as nothing, pads of rows to their whole length write zeros there,
/// and other readers get a slice. Each element keeps its value; a sum along a row may have another tree.
void widenRows(SliceOp slice);

} // namespace tcc::train

#endif // TCC_LAYOUTS_WIDENROWS_H
