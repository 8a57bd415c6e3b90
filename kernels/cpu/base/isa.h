// SPDX-License-Identifier: Apache-2.0
// The CPU paths: which of them this machine can run, and how one is pinned for every op.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foretoken::kernels::cpu {

// Best first.
enum class Isa { kAmx, kAvx512Bf16, kAvx512, kAvx2, kBaseline };

const char* Name(Isa isa);
std::optional<Isa> IsaFromName(std::string_view name);

// Best first, never empty: kBaseline runs everywhere. Asks the kernel for the AMX tile state, once.
const std::vector<Isa>& SupportedIsas();

// The Highway that the kernels were compiled with, and which of its targets their ops take now: "highway-1.0.3/AVX3".
// A pin says which targets may be taken; the compiler and the processor say which there are.
std::string DescribeHighway();

// Makes every Highway op of this process take the path of `isa` for as long as a pin lives. Highway's choice is
// process-wide, so all pins that live at one time must name one isa.
class IsaPin {
 public:
  // Unset where a pin of another isa lives. `isa` is one of SupportedIsas().
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
