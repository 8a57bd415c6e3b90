// SPDX-License-Identifier: Apache-2.0
// The CPU paths: lists the paths that this machine can run, and pins one for every op.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foretoken::kernels::cpu {

// Best first.
enum class Isa { kAmx, kAvx512Bf16, kAvx512Vnni, kAvx512, kAvxVnni, kAvx2, kBaseline };

const char* Name(Isa isa);
std::optional<Isa> IsaFromName(std::string_view name);

// Best first, never empty: kBaseline runs everywhere. Asks Linux for the AMX tile state, once.
const std::vector<Isa>& SupportedIsas();

// Whether an isa has the AVX-512 kernels for integers and rows of int8, which VNNI multiplies, or rows of bf16.
// AVX-512-BF16 counts only with VNNI.
constexpr bool HasAvx512Integers(Isa isa, bool int8_rows) {
  return isa == Isa::kAmx || isa == Isa::kAvx512Bf16 || (isa == Isa::kAvx512Vnni && int8_rows);
}

// Names the version of Highway that the kernels were compiled with and the target that their ops take now:
// "highway-1.0.3/AVX3". A pin limits the targets; the compiler and the processor decide which of them exist.
std::string DescribeHighway();

// Makes every Highway op of this process take the path of `isa` while the pin lives. Highway's choice is process-wide,
// so all pins that live at one time must name one isa.
class IsaPin {
 public:
  // Unset if a pin of another isa lives. `isa` is one of SupportedIsas().
  static std::optional<IsaPin> Make(Isa isa);
  ~IsaPin();
  IsaPin(IsaPin&& other) noexcept : isa_(other.isa_) { other.isa_.reset(); }
  IsaPin& operator=(IsaPin&&) = delete;

  Isa isa() const { return *isa_; }

 private:
  explicit IsaPin(Isa isa) : isa_(isa) {}
  std::optional<Isa> isa_;  // unset: moved from
};

}  // namespace foretoken::kernels::cpu
