// RUN: tcc-opt %s --find-loops | FileCheck %s

// Seventeen steps over slices of %x; all states are stacked. The body has one of each op, and carries the state.
// CHECK-LABEL: func.func @stacked
// CHECK: %[[ROWS:.*]] = train.transpose %{{.*}} [1, 0, 2, 3] : tensor<3x17x1x4xf32> -> tensor<17x3x1x4xf32>
// CHECK: %[[LOOP:.*]]:2 = train.loop %{{.*}}, %[[ROWS]], %{{.*}} steps 17 {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<3x4xf32>, tensor<17x3x1x4xf32>, tensor<3x4xf32>) -> (tensor<3x4xf32>, tensor<17x3x1x4xf32>) {
// CHECK-NEXT: ^bb0(%[[H:.*]]: tensor<3x4xf32>, %[[X:.*]]: tensor<3x1x4xf32>, %[[W:.*]]: tensor<3x4xf32>):
// CHECK: %[[M:.*]] = train.mul %[[H]], %[[W]]
// CHECK: %[[A:.*]] = train.add %[[M]], %{{.*}}
// CHECK: %[[U:.*]] = train.reshape %[[A]] : tensor<3x4xf32> -> tensor<3x1x4xf32>
// CHECK: train.next(%[[A]] : tensor<3x4xf32>) parts(%[[U]] : tensor<3x1x4xf32>)
// CHECK-NOT: train.concat
// CHECK: %[[ALL:.*]] = train.transpose %[[LOOP]]#1 [1, 0, 2, 3] : tensor<17x3x1x4xf32> -> tensor<3x17x1x4xf32>
// CHECK: return %{{.*}}, %[[LOOP]]#0
func.func @stacked(%h: tensor<3x4xf32>, %x: tensor<3x17x4xf32>, %w: tensor<3x4xf32>) -> (tensor<3x17x4xf32>, tensor<3x4xf32>) {
  %s0 = train.slice %x starts [0, 0, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x0 = train.reshape %s0 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m0 = train.mul %h, %w : tensor<3x4xf32>
  %h0 = train.add %m0, %x0 : tensor<3x4xf32>
  %u0 = train.reshape %h0 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s1 = train.slice %x starts [0, 1, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x1 = train.reshape %s1 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m1 = train.mul %h0, %w : tensor<3x4xf32>
  %h1 = train.add %m1, %x1 : tensor<3x4xf32>
  %u1 = train.reshape %h1 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s2 = train.slice %x starts [0, 2, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x2 = train.reshape %s2 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m2 = train.mul %h1, %w : tensor<3x4xf32>
  %h2 = train.add %m2, %x2 : tensor<3x4xf32>
  %u2 = train.reshape %h2 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s3 = train.slice %x starts [0, 3, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x3 = train.reshape %s3 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m3 = train.mul %h2, %w : tensor<3x4xf32>
  %h3 = train.add %m3, %x3 : tensor<3x4xf32>
  %u3 = train.reshape %h3 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s4 = train.slice %x starts [0, 4, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x4 = train.reshape %s4 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m4 = train.mul %h3, %w : tensor<3x4xf32>
  %h4 = train.add %m4, %x4 : tensor<3x4xf32>
  %u4 = train.reshape %h4 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s5 = train.slice %x starts [0, 5, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x5 = train.reshape %s5 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m5 = train.mul %h4, %w : tensor<3x4xf32>
  %h5 = train.add %m5, %x5 : tensor<3x4xf32>
  %u5 = train.reshape %h5 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s6 = train.slice %x starts [0, 6, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x6 = train.reshape %s6 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m6 = train.mul %h5, %w : tensor<3x4xf32>
  %h6 = train.add %m6, %x6 : tensor<3x4xf32>
  %u6 = train.reshape %h6 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s7 = train.slice %x starts [0, 7, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x7 = train.reshape %s7 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m7 = train.mul %h6, %w : tensor<3x4xf32>
  %h7 = train.add %m7, %x7 : tensor<3x4xf32>
  %u7 = train.reshape %h7 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s8 = train.slice %x starts [0, 8, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x8 = train.reshape %s8 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m8 = train.mul %h7, %w : tensor<3x4xf32>
  %h8 = train.add %m8, %x8 : tensor<3x4xf32>
  %u8 = train.reshape %h8 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s9 = train.slice %x starts [0, 9, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x9 = train.reshape %s9 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m9 = train.mul %h8, %w : tensor<3x4xf32>
  %h9 = train.add %m9, %x9 : tensor<3x4xf32>
  %u9 = train.reshape %h9 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s10 = train.slice %x starts [0, 10, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x10 = train.reshape %s10 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m10 = train.mul %h9, %w : tensor<3x4xf32>
  %h10 = train.add %m10, %x10 : tensor<3x4xf32>
  %u10 = train.reshape %h10 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s11 = train.slice %x starts [0, 11, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x11 = train.reshape %s11 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m11 = train.mul %h10, %w : tensor<3x4xf32>
  %h11 = train.add %m11, %x11 : tensor<3x4xf32>
  %u11 = train.reshape %h11 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s12 = train.slice %x starts [0, 12, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x12 = train.reshape %s12 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m12 = train.mul %h11, %w : tensor<3x4xf32>
  %h12 = train.add %m12, %x12 : tensor<3x4xf32>
  %u12 = train.reshape %h12 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s13 = train.slice %x starts [0, 13, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x13 = train.reshape %s13 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m13 = train.mul %h12, %w : tensor<3x4xf32>
  %h13 = train.add %m13, %x13 : tensor<3x4xf32>
  %u13 = train.reshape %h13 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s14 = train.slice %x starts [0, 14, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x14 = train.reshape %s14 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m14 = train.mul %h13, %w : tensor<3x4xf32>
  %h14 = train.add %m14, %x14 : tensor<3x4xf32>
  %u14 = train.reshape %h14 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s15 = train.slice %x starts [0, 15, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x15 = train.reshape %s15 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m15 = train.mul %h14, %w : tensor<3x4xf32>
  %h15 = train.add %m15, %x15 : tensor<3x4xf32>
  %u15 = train.reshape %h15 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %s16 = train.slice %x starts [0, 16, 0] steps [1, 1, 1] : tensor<3x17x4xf32> -> tensor<3x1x4xf32>
  %x16 = train.reshape %s16 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m16 = train.mul %h15, %w : tensor<3x4xf32>
  %h16 = train.add %m16, %x16 : tensor<3x4xf32>
  %u16 = train.reshape %h16 : tensor<3x4xf32> -> tensor<3x1x4xf32>
  %all = train.concat dim = 1 %u0, %u1, %u2, %u3, %u4, %u5, %u6, %u7, %u8, %u9, %u10, %u11, %u12, %u13, %u14, %u15, %u16 : (tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>, tensor<3x1x4xf32>) -> tensor<3x17x4xf32>
  return %all, %h16 : tensor<3x17x4xf32>, tensor<3x4xf32>
}

// The last step comes first in the text; only the last state is read.
// CHECK-LABEL: func.func @backwards
// CHECK: %[[ROWS:.*]] = train.reverse %{{.*}} [0] : tensor<16x3x1x4xf32>
// CHECK: %[[LAST:.*]] = train.loop %{{.*}}, %[[ROWS]], %{{.*}} steps 16 {operandSegmentSizes = array<i32: 1, 1, 1>}
// CHECK: train.next(%{{.*}} : tensor<3x4xf32>)
// CHECK: return %[[LAST]]
func.func @backwards(%h: tensor<3x4xf32>, %x: tensor<3x16x4xf32>, %w: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %s0 = train.slice %x starts [0, 15, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x0 = train.reshape %s0 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m0 = train.mul %h, %w : tensor<3x4xf32>
  %h0 = train.add %m0, %x0 : tensor<3x4xf32>
  %s1 = train.slice %x starts [0, 14, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x1 = train.reshape %s1 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m1 = train.mul %h0, %w : tensor<3x4xf32>
  %h1 = train.add %m1, %x1 : tensor<3x4xf32>
  %s2 = train.slice %x starts [0, 13, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x2 = train.reshape %s2 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m2 = train.mul %h1, %w : tensor<3x4xf32>
  %h2 = train.add %m2, %x2 : tensor<3x4xf32>
  %s3 = train.slice %x starts [0, 12, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x3 = train.reshape %s3 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m3 = train.mul %h2, %w : tensor<3x4xf32>
  %h3 = train.add %m3, %x3 : tensor<3x4xf32>
  %s4 = train.slice %x starts [0, 11, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x4 = train.reshape %s4 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m4 = train.mul %h3, %w : tensor<3x4xf32>
  %h4 = train.add %m4, %x4 : tensor<3x4xf32>
  %s5 = train.slice %x starts [0, 10, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x5 = train.reshape %s5 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m5 = train.mul %h4, %w : tensor<3x4xf32>
  %h5 = train.add %m5, %x5 : tensor<3x4xf32>
  %s6 = train.slice %x starts [0, 9, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x6 = train.reshape %s6 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m6 = train.mul %h5, %w : tensor<3x4xf32>
  %h6 = train.add %m6, %x6 : tensor<3x4xf32>
  %s7 = train.slice %x starts [0, 8, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x7 = train.reshape %s7 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m7 = train.mul %h6, %w : tensor<3x4xf32>
  %h7 = train.add %m7, %x7 : tensor<3x4xf32>
  %s8 = train.slice %x starts [0, 7, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x8 = train.reshape %s8 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m8 = train.mul %h7, %w : tensor<3x4xf32>
  %h8 = train.add %m8, %x8 : tensor<3x4xf32>
  %s9 = train.slice %x starts [0, 6, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x9 = train.reshape %s9 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m9 = train.mul %h8, %w : tensor<3x4xf32>
  %h9 = train.add %m9, %x9 : tensor<3x4xf32>
  %s10 = train.slice %x starts [0, 5, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x10 = train.reshape %s10 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m10 = train.mul %h9, %w : tensor<3x4xf32>
  %h10 = train.add %m10, %x10 : tensor<3x4xf32>
  %s11 = train.slice %x starts [0, 4, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x11 = train.reshape %s11 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m11 = train.mul %h10, %w : tensor<3x4xf32>
  %h11 = train.add %m11, %x11 : tensor<3x4xf32>
  %s12 = train.slice %x starts [0, 3, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x12 = train.reshape %s12 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m12 = train.mul %h11, %w : tensor<3x4xf32>
  %h12 = train.add %m12, %x12 : tensor<3x4xf32>
  %s13 = train.slice %x starts [0, 2, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x13 = train.reshape %s13 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m13 = train.mul %h12, %w : tensor<3x4xf32>
  %h13 = train.add %m13, %x13 : tensor<3x4xf32>
  %s14 = train.slice %x starts [0, 1, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x14 = train.reshape %s14 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m14 = train.mul %h13, %w : tensor<3x4xf32>
  %h14 = train.add %m14, %x14 : tensor<3x4xf32>
  %s15 = train.slice %x starts [0, 0, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x15 = train.reshape %s15 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m15 = train.mul %h14, %w : tensor<3x4xf32>
  %h15 = train.add %m15, %x15 : tensor<3x4xf32>
  return %h15 : tensor<3x4xf32>
}

// Fifteen steps are too few for a loop.
// CHECK-LABEL: func.func @few
// CHECK-NOT: train.loop
// CHECK: return
func.func @few(%h: tensor<3x4xf32>, %x: tensor<3x15x4xf32>, %w: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %s0 = train.slice %x starts [0, 0, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x0 = train.reshape %s0 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m0 = train.mul %h, %w : tensor<3x4xf32>
  %h0 = train.add %m0, %x0 : tensor<3x4xf32>
  %s1 = train.slice %x starts [0, 1, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x1 = train.reshape %s1 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m1 = train.mul %h0, %w : tensor<3x4xf32>
  %h1 = train.add %m1, %x1 : tensor<3x4xf32>
  %s2 = train.slice %x starts [0, 2, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x2 = train.reshape %s2 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m2 = train.mul %h1, %w : tensor<3x4xf32>
  %h2 = train.add %m2, %x2 : tensor<3x4xf32>
  %s3 = train.slice %x starts [0, 3, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x3 = train.reshape %s3 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m3 = train.mul %h2, %w : tensor<3x4xf32>
  %h3 = train.add %m3, %x3 : tensor<3x4xf32>
  %s4 = train.slice %x starts [0, 4, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x4 = train.reshape %s4 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m4 = train.mul %h3, %w : tensor<3x4xf32>
  %h4 = train.add %m4, %x4 : tensor<3x4xf32>
  %s5 = train.slice %x starts [0, 5, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x5 = train.reshape %s5 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m5 = train.mul %h4, %w : tensor<3x4xf32>
  %h5 = train.add %m5, %x5 : tensor<3x4xf32>
  %s6 = train.slice %x starts [0, 6, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x6 = train.reshape %s6 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m6 = train.mul %h5, %w : tensor<3x4xf32>
  %h6 = train.add %m6, %x6 : tensor<3x4xf32>
  %s7 = train.slice %x starts [0, 7, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x7 = train.reshape %s7 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m7 = train.mul %h6, %w : tensor<3x4xf32>
  %h7 = train.add %m7, %x7 : tensor<3x4xf32>
  %s8 = train.slice %x starts [0, 8, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x8 = train.reshape %s8 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m8 = train.mul %h7, %w : tensor<3x4xf32>
  %h8 = train.add %m8, %x8 : tensor<3x4xf32>
  %s9 = train.slice %x starts [0, 9, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x9 = train.reshape %s9 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m9 = train.mul %h8, %w : tensor<3x4xf32>
  %h9 = train.add %m9, %x9 : tensor<3x4xf32>
  %s10 = train.slice %x starts [0, 10, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x10 = train.reshape %s10 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m10 = train.mul %h9, %w : tensor<3x4xf32>
  %h10 = train.add %m10, %x10 : tensor<3x4xf32>
  %s11 = train.slice %x starts [0, 11, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x11 = train.reshape %s11 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m11 = train.mul %h10, %w : tensor<3x4xf32>
  %h11 = train.add %m11, %x11 : tensor<3x4xf32>
  %s12 = train.slice %x starts [0, 12, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x12 = train.reshape %s12 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m12 = train.mul %h11, %w : tensor<3x4xf32>
  %h12 = train.add %m12, %x12 : tensor<3x4xf32>
  %s13 = train.slice %x starts [0, 13, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x13 = train.reshape %s13 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m13 = train.mul %h12, %w : tensor<3x4xf32>
  %h13 = train.add %m13, %x13 : tensor<3x4xf32>
  %s14 = train.slice %x starts [0, 14, 0] steps [1, 1, 1] : tensor<3x15x4xf32> -> tensor<3x1x4xf32>
  %x14 = train.reshape %s14 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m14 = train.mul %h13, %w : tensor<3x4xf32>
  %h14 = train.add %m14, %x14 : tensor<3x4xf32>
  return %h14 : tensor<3x4xf32>
}

// Steps that do not read one another can run side by side: there is no loop.
// CHECK-LABEL: func.func @independent
// CHECK-NOT: train.loop
// CHECK: return
func.func @independent(%x: tensor<3x16x4xf32>, %w: tensor<3x4xf32>) -> tensor<3x64xf32> {
  %s0 = train.slice %x starts [0, 0, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x0 = train.reshape %s0 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m0 = train.mul %x0, %w : tensor<3x4xf32>
  %h0 = train.tanh %m0 : tensor<3x4xf32>
  %s1 = train.slice %x starts [0, 1, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x1 = train.reshape %s1 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m1 = train.mul %x1, %w : tensor<3x4xf32>
  %h1 = train.tanh %m1 : tensor<3x4xf32>
  %s2 = train.slice %x starts [0, 2, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x2 = train.reshape %s2 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m2 = train.mul %x2, %w : tensor<3x4xf32>
  %h2 = train.tanh %m2 : tensor<3x4xf32>
  %s3 = train.slice %x starts [0, 3, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x3 = train.reshape %s3 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m3 = train.mul %x3, %w : tensor<3x4xf32>
  %h3 = train.tanh %m3 : tensor<3x4xf32>
  %s4 = train.slice %x starts [0, 4, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x4 = train.reshape %s4 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m4 = train.mul %x4, %w : tensor<3x4xf32>
  %h4 = train.tanh %m4 : tensor<3x4xf32>
  %s5 = train.slice %x starts [0, 5, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x5 = train.reshape %s5 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m5 = train.mul %x5, %w : tensor<3x4xf32>
  %h5 = train.tanh %m5 : tensor<3x4xf32>
  %s6 = train.slice %x starts [0, 6, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x6 = train.reshape %s6 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m6 = train.mul %x6, %w : tensor<3x4xf32>
  %h6 = train.tanh %m6 : tensor<3x4xf32>
  %s7 = train.slice %x starts [0, 7, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x7 = train.reshape %s7 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m7 = train.mul %x7, %w : tensor<3x4xf32>
  %h7 = train.tanh %m7 : tensor<3x4xf32>
  %s8 = train.slice %x starts [0, 8, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x8 = train.reshape %s8 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m8 = train.mul %x8, %w : tensor<3x4xf32>
  %h8 = train.tanh %m8 : tensor<3x4xf32>
  %s9 = train.slice %x starts [0, 9, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x9 = train.reshape %s9 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m9 = train.mul %x9, %w : tensor<3x4xf32>
  %h9 = train.tanh %m9 : tensor<3x4xf32>
  %s10 = train.slice %x starts [0, 10, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x10 = train.reshape %s10 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m10 = train.mul %x10, %w : tensor<3x4xf32>
  %h10 = train.tanh %m10 : tensor<3x4xf32>
  %s11 = train.slice %x starts [0, 11, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x11 = train.reshape %s11 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m11 = train.mul %x11, %w : tensor<3x4xf32>
  %h11 = train.tanh %m11 : tensor<3x4xf32>
  %s12 = train.slice %x starts [0, 12, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x12 = train.reshape %s12 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m12 = train.mul %x12, %w : tensor<3x4xf32>
  %h12 = train.tanh %m12 : tensor<3x4xf32>
  %s13 = train.slice %x starts [0, 13, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x13 = train.reshape %s13 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m13 = train.mul %x13, %w : tensor<3x4xf32>
  %h13 = train.tanh %m13 : tensor<3x4xf32>
  %s14 = train.slice %x starts [0, 14, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x14 = train.reshape %s14 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m14 = train.mul %x14, %w : tensor<3x4xf32>
  %h14 = train.tanh %m14 : tensor<3x4xf32>
  %s15 = train.slice %x starts [0, 15, 0] steps [1, 1, 1] : tensor<3x16x4xf32> -> tensor<3x1x4xf32>
  %x15 = train.reshape %s15 : tensor<3x1x4xf32> -> tensor<3x4xf32>
  %m15 = train.mul %x15, %w : tensor<3x4xf32>
  %h15 = train.tanh %m15 : tensor<3x4xf32>
  %all = train.concat dim = 1 %h0, %h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8, %h9, %h10, %h11, %h12, %h13, %h14, %h15 : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x64xf32>
  return %all : tensor<3x64xf32>
}

// Between steps the state goes through a movement.
// CHECK-LABEL: func.func @moved
// CHECK: train.loop %{{.*}}, %{{.*}} steps 16 {operandSegmentSizes = array<i32: 1, 0, 1>}
// CHECK: train.transpose
// CHECK: train.next
// CHECK: return
func.func @moved(%h: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %t0 = train.transpose %h [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m0 = train.mul %t0, %w : tensor<4x4xf32>
  %h0 = train.tanh %m0 : tensor<4x4xf32>
  %t1 = train.transpose %h0 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m1 = train.mul %t1, %w : tensor<4x4xf32>
  %h1 = train.tanh %m1 : tensor<4x4xf32>
  %t2 = train.transpose %h1 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m2 = train.mul %t2, %w : tensor<4x4xf32>
  %h2 = train.tanh %m2 : tensor<4x4xf32>
  %t3 = train.transpose %h2 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m3 = train.mul %t3, %w : tensor<4x4xf32>
  %h3 = train.tanh %m3 : tensor<4x4xf32>
  %t4 = train.transpose %h3 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m4 = train.mul %t4, %w : tensor<4x4xf32>
  %h4 = train.tanh %m4 : tensor<4x4xf32>
  %t5 = train.transpose %h4 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m5 = train.mul %t5, %w : tensor<4x4xf32>
  %h5 = train.tanh %m5 : tensor<4x4xf32>
  %t6 = train.transpose %h5 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m6 = train.mul %t6, %w : tensor<4x4xf32>
  %h6 = train.tanh %m6 : tensor<4x4xf32>
  %t7 = train.transpose %h6 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m7 = train.mul %t7, %w : tensor<4x4xf32>
  %h7 = train.tanh %m7 : tensor<4x4xf32>
  %t8 = train.transpose %h7 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m8 = train.mul %t8, %w : tensor<4x4xf32>
  %h8 = train.tanh %m8 : tensor<4x4xf32>
  %t9 = train.transpose %h8 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m9 = train.mul %t9, %w : tensor<4x4xf32>
  %h9 = train.tanh %m9 : tensor<4x4xf32>
  %t10 = train.transpose %h9 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m10 = train.mul %t10, %w : tensor<4x4xf32>
  %h10 = train.tanh %m10 : tensor<4x4xf32>
  %t11 = train.transpose %h10 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m11 = train.mul %t11, %w : tensor<4x4xf32>
  %h11 = train.tanh %m11 : tensor<4x4xf32>
  %t12 = train.transpose %h11 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m12 = train.mul %t12, %w : tensor<4x4xf32>
  %h12 = train.tanh %m12 : tensor<4x4xf32>
  %t13 = train.transpose %h12 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m13 = train.mul %t13, %w : tensor<4x4xf32>
  %h13 = train.tanh %m13 : tensor<4x4xf32>
  %t14 = train.transpose %h13 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m14 = train.mul %t14, %w : tensor<4x4xf32>
  %h14 = train.tanh %m14 : tensor<4x4xf32>
  %t15 = train.transpose %h14 [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  %m15 = train.mul %t15, %w : tensor<4x4xf32>
  %h15 = train.tanh %m15 : tensor<4x4xf32>
  return %h15 : tensor<4x4xf32>
}

// A value that a step reads from two steps before is no state.
// CHECK-LABEL: func.func @two_before
// CHECK-NOT: train.loop
// CHECK: return
func.func @two_before(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %h0 = train.mul %a, %b : tensor<4xf32>
  %h1 = train.mul %b, %h0 : tensor<4xf32>
  %h2 = train.mul %h0, %h1 : tensor<4xf32>
  %h3 = train.mul %h1, %h2 : tensor<4xf32>
  %h4 = train.mul %h2, %h3 : tensor<4xf32>
  %h5 = train.mul %h3, %h4 : tensor<4xf32>
  %h6 = train.mul %h4, %h5 : tensor<4xf32>
  %h7 = train.mul %h5, %h6 : tensor<4xf32>
  %h8 = train.mul %h6, %h7 : tensor<4xf32>
  %h9 = train.mul %h7, %h8 : tensor<4xf32>
  %h10 = train.mul %h8, %h9 : tensor<4xf32>
  %h11 = train.mul %h9, %h10 : tensor<4xf32>
  %h12 = train.mul %h10, %h11 : tensor<4xf32>
  %h13 = train.mul %h11, %h12 : tensor<4xf32>
  %h14 = train.mul %h12, %h13 : tensor<4xf32>
  %h15 = train.mul %h13, %h14 : tensor<4xf32>
  %h16 = train.mul %h14, %h15 : tensor<4xf32>
  %h17 = train.mul %h15, %h16 : tensor<4xf32>
  return %h17 : tensor<4xf32>
}
