// SPDX-License-Identifier: Apache-2.0
// Reads the input as a model's chat template. It is refused with a reason, or it can be rendered. It is not rendered
// here, because a render may take a second of work by its bounds.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/chat/chat_template.h"
#include "kernels/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;
  const std::string source(reinterpret_cast<const char*>(data), size);
  const absl::Status status = chat::ChatTemplate::Parse({.standard = source}, absl::Now).status();
  if (status.ok()) return 0;
  FT_CHECK(absl::IsInvalidArgument(status) && absl::StartsWith(status.message(), "chat template: "));
  return 0;
}
