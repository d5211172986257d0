// The emulated GPU's vector types, as the CUDA toolkit lays them out.
#pragma once

#define __align__(bytes) __attribute__((aligned(bytes)))

struct __align__(16) int4 {
  int x, y, z, w;
};
struct __align__(8) uint2 {
  unsigned x, y;
};
struct uint3 {
  unsigned x, y, z;
};
struct __align__(16) uint4 {
  unsigned x, y, z, w;
};
struct __align__(16) float4 {
  float x, y, z, w;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};
