// The attribute holds what differs from the defaults, by member; passes read it back.
// RUN: tcc-opt %s --set-recipe="settings=loss.kind=huber,loss.target=t,loss.delta=0.7,loss.weight=[1,2.5],adapter.targets=['a*','b'],adapter.rank=2,optimizer.amsgrad=true,optimizer.layer_decay={pattern='layers.{}.', rate=0.5},train.clip_value=0.1" | FileCheck %s
// RUN: tcc-opt %s --set-recipe | FileCheck %s --check-prefix=DEFAULT
// RUN: not tcc-opt %s --set-recipe="settings=loss.delta=wide" 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not tcc-opt %s --set-recipe="settings=loss.kin=mse" 2>&1 | FileCheck %s --check-prefix=KEY

// CHECK: train.recipe =
// CHECK-SAME: adapter = {rank = 2 : i64, targets = ["a*", "b"]}
// CHECK-SAME: loss = {delta = {{0.7|0.69999999999999996|7.0*e-01}} : f64, kind = "huber", target = "t", weight = [1.000000e+00, 2.500000e+00]}
// CHECK-SAME: optimizer = {flags = ["amsgrad"], layer_decay = {pattern = "layers.{}.", rate = 5.000000e-01 : f64}}
// CHECK-SAME: train = {clip_value = 1.000000e-01 : f64}
// DEFAULT: train.recipe = {}
// TYPE: set-recipe: loss.delta
// KEY: set-recipe: unknown key loss.kin; the nearest known one is loss.kind
module {}
