// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/cases/emulated_amx.h"

// tests/CMakeLists.txt defines HWY_TARGET_INCLUDE, which is this file.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/matmul/matmul_integer_amx-inl.h"
#include "tests/testing/cases/emulated_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

void MultiplyOnEmulatedAmx(const MatMulTile& tile) { AmxIntegerTile<testing::EmulatedTiles>::Multiply(tile); }

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {
namespace {

HWY_EXPORT(MultiplyOnEmulatedAmx);
void Dispatch(const MatMulTile& tile) { HWY_DYNAMIC_DISPATCH(MultiplyOnEmulatedAmx)(tile); }

}  // namespace
}  // namespace foretoken::kernels::cpu

void foretoken::testing::MultiplyOnEmulatedAmx(const kernels::cpu::MatMulTile& tile) { kernels::cpu::Dispatch(tile); }
#endif
