// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/base/isa.h"

#include <hwy/highway.h>

#include <array>
#include <cstdint>
#include <mutex>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace foretoken::kernels::cpu {
namespace {

constexpr std::array kIsas = {Isa::kAmx,     Isa::kAvx512Bf16, Isa::kAvx512Vnni, Isa::kAvx512,
                              Isa::kAvxVnni, Isa::kAvx2,       Isa::kBaseline};

#if defined(__x86_64__)

bool HasAvx512Vnni() {
  uint32_t eax, ebx, ecx, edx;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 11 & 1) != 0;
}

bool HasAvx512Bf16() {
  uint32_t eax, ebx, ecx, edx;
  return HasAvx512Vnni() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 5 & 1) != 0;
}

bool HasAvxVnni() {
  uint32_t eax, ebx, ecx, edx;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}

// The processor's flags are not enough: a process must ask Linux (from 5.16 on) for the 8 KiB of tile state.
bool HasAmx() {
  uint32_t eax, ebx, ecx, edx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  const bool has_tiles = (edx >> 24 & 1) != 0;
  const bool has_bf16 = (edx >> 22 & 1) != 0;
  const bool has_int8 = (edx >> 25 & 1) != 0;
  constexpr int64_t kArchReqXcompPerm = 0x1023;
  constexpr int64_t kXfeatureTileData = 18;
  return has_tiles && has_bf16 && has_int8 && syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
}

#else

bool HasAvx512Vnni() { return false; }
bool HasAvx512Bf16() { return false; }
bool HasAvxVnni() { return false; }
bool HasAmx() { return false; }

#endif

std::vector<Isa> Detect() {
  const int64_t targets = hwy::SupportedTargets();
  std::vector<Isa> isas;
  if ((targets & HWY_AVX3) != 0) {
    if (HasAmx()) isas.push_back(Isa::kAmx);
    if (HasAvx512Bf16()) isas.push_back(Isa::kAvx512Bf16);
    if (HasAvx512Vnni()) isas.push_back(Isa::kAvx512Vnni);
    isas.push_back(Isa::kAvx512);
  }
  if ((targets & HWY_AVX2) != 0) {
    if (HasAvxVnni()) isas.push_back(Isa::kAvxVnni);
    isas.push_back(Isa::kAvx2);
  }
  isas.push_back(Isa::kBaseline);
  return isas;
}

// Highway orders its x86 targets by their bits: a better target has a lower bit.
int64_t HighwayTargets(Isa isa) {
  switch (isa) {
    case Isa::kAmx:
    case Isa::kAvx512Bf16:
    case Isa::kAvx512Vnni:
    case Isa::kAvx512:
      return ~(HWY_AVX3 - 1);
    case Isa::kAvxVnni:
    case Isa::kAvx2:
      return ~(HWY_AVX2 - 1);
    case Isa::kBaseline:
      return ~(HWY_AVX2 | (HWY_AVX2 - 1));
  }
  return 0;
}

// Guards the pins, which set Highway's process-wide state.
std::mutex pin_mutex;
int num_pins = 0;
Isa pinned_isa = Isa::kBaseline;

}  // namespace

const char* Name(Isa isa) {
  switch (isa) {
    case Isa::kAmx:
      return "amx";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAvx512Vnni:
      return "avx512_vnni";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvxVnni:
      return "avx_vnni";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kBaseline:
      return "baseline";
  }
  return "?";
}

std::optional<Isa> IsaFromName(std::string_view name) {
  for (const Isa isa : kIsas) {
    if (name == Name(isa)) return isa;
  }
  return std::nullopt;
}

const std::vector<Isa>& SupportedIsas() {
  static const std::vector<Isa> isas = Detect();
  return isas;
}

std::string DescribeHighway() {
  const auto number = [](int part) { return std::to_string(part); };
  return "highway-" + number(HWY_MAJOR) + "." + number(HWY_MINOR) + "." + number(HWY_PATCH) + "/" +
         hwy::TargetName(hwy::SupportedAndGeneratedTargets().front());
}

std::optional<IsaPin> IsaPin::Make(Isa isa) {
  SupportedIsas();  // before a pin hides the better targets
  const std::lock_guard lock(pin_mutex);
  if (num_pins != 0 && pinned_isa != isa) return std::nullopt;
  if (num_pins++ == 0) {
    pinned_isa = isa;
    static const int64_t machine_targets = hwy::SupportedTargets();
    hwy::SetSupportedTargetsForTest(machine_targets & HighwayTargets(isa));
  }
  return IsaPin(isa);
}

IsaPin::~IsaPin() {
  if (!isa_) return;
  const std::lock_guard lock(pin_mutex);
  if (--num_pins == 0) hwy::SetSupportedTargetsForTest(0);
}

}  // namespace foretoken::kernels::cpu
