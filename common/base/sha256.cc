// SPDX-License-Identifier: Apache-2.0
#include "common/base/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "kernels/check.h"

namespace foretoken::base {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) { FT_CHECK(EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1); }

Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

void Sha256::Update(absl::string_view bytes) { FT_CHECK(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1); }

void Sha256::UpdateInteger(uint64_t value) {
  char bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  Update(absl::string_view(bytes, 8));
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  FT_CHECK(EVP_DigestFinal_ex(context_, digest.data(), nullptr) == 1);
  return digest;
}

std::string ToHex(std::span<const uint8_t> bytes) {
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace foretoken::base
