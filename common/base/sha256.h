// SPDX-License-Identifier: Apache-2.0
// SHA-256 over several pieces, for fingerprints and cache keys.
// Threads: one object, one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;

namespace foretoken::base {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  ~Sha256();
  void Update(absl::string_view bytes);
  // Adds the number as 8 little-endian bytes, so that a digest is the same on every machine.
  void UpdateInteger(uint64_t value);
  // Ends the digest. The object must not be used afterwards.
  Sha256Digest Finish();

 private:
  evp_md_ctx_st* context_;
};

std::string ToHex(std::span<const uint8_t> bytes);

}  // namespace foretoken::base
