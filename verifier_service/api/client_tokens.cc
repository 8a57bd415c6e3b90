// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/client_tokens.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/error_text.h"
#include "common/base/mapped_file.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace foretoken::verifier {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;

// The scheme's name has any case (RFC 9110). Empty if the value has another scheme.
absl::string_view BearerToken(absl::string_view authorization) {
  constexpr absl::string_view kScheme = "bearer ";
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) return {};
  return absl::StripAsciiWhitespace(authorization.substr(kScheme.size()));
}

base::Sha256Digest DigestOf(absl::string_view token) {
  base::Sha256 hash;
  hash.Update(token);
  return hash.Finish();
}

absl::Status Unauthenticated(absl::string_view why) {
  return base::WithReason(absl::UnauthenticatedError(absl::StrCat("authorization: ", why)), "UNAUTHENTICATED");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClientTokens>> ClientTokens::Load(const std::string& path) {
  std::unique_ptr<ClientTokens> tokens(new ClientTokens(path));
  tokens->read_ = VersionOf(path);
  FT_ASSIGN_OR_RETURN(const std::string contents, Read(path));
  absl::MutexLock lock(&tokens->mutex_);
  FT_ASSIGN_OR_RETURN(tokens->digests_, Parse(path, contents));
  if (tokens->digests_.empty()) return absl::InvalidArgumentError(absl::StrCat("token file: ", path, " has no token"));
  return tokens;
}

absl::StatusOr<std::string> ClientTokens::Read(const std::string& path) {
  absl::StatusOr<std::string> contents = base::ReadFile(path);
  if (contents.ok()) return contents;
  return absl::InvalidArgumentError(absl::StrCat("token file: ", contents.status().message()));
}

absl::StatusOr<std::vector<ClientTokens::Digest>> ClientTokens::Parse(const std::string& path,
                                                                      absl::string_view contents) {
  absl::ConsumePrefix(&contents, "\xEF\xBB\xBF");  // some editors mark UTF-8 so
  if (contents.empty()) return absl::InvalidArgumentError(absl::StrCat("token file: ", path, " is empty"));
  if (contents.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat("token file: ", path, " has more than ", kMaxFileBytes, " bytes"));
  }
  std::vector<Digest> digests;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(contents, '\n')) {
    ++line_number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    if (line.size() < kMinTokenBytes || line.size() > kMaxTokenBytes) {
      return absl::InvalidArgumentError(absl::StrCat("token file: ", path, ", line ", line_number, ": expected ",
                                                     kMinTokenBytes, " to ", kMaxTokenBytes, " bytes, got ",
                                                     line.size()));
    }
    digests.push_back(DigestOf(line));
  }
  return digests;
}

ClientTokens::Version ClientTokens::VersionOf(const std::string& path) {
  struct stat file = {};
  if (stat(path.c_str(), &file) != 0) return {};
  return {.device = file.st_dev,
          .inode = file.st_ino,
          .size = file.st_size,
          .seconds = file.st_ctim.tv_sec,
          .nanos = file.st_ctim.tv_nsec};
}

void ClientTokens::Look() {
  const Version version = VersionOf(path_);
  const bool is_settled = std::exchange(seen_, version) == version;
  if (version == read_ || !is_settled) return;
  const absl::StatusOr<std::string> contents = Read(path_);
  if (VersionOf(path_) != version) return;  // somebody is writing it
  absl::StatusOr<std::vector<Digest>> digests = contents.ok() ? Parse(path_, *contents) : contents.status();
  if (contents.ok()) read_ = version;  // else the next look tries again: the process may just have no free descriptor
  if (!digests.ok()) {
    if (std::exchange(trouble_, std::string(digests.status().message())) != digests.status().message()) {
      spdlog::warn("{}; the last tokens stay in force", trouble_);
    }
    return;
  }
  trouble_.clear();
  spdlog::info("token file: read again, {} tokens", digests->size());
  absl::MutexLock lock(&mutex_);
  digests_ = *std::move(digests);
}

absl::Status ClientTokens::Check(absl::string_view authorization) const {
  if (authorization.empty()) return Unauthenticated("expected a bearer token, got none");
  const absl::string_view token = BearerToken(authorization);
  if (token.empty() || token.size() > kMaxTokenBytes) return Unauthenticated("expected \"Bearer TOKEN\"");
  const Digest digest = DigestOf(token);
  absl::MutexLock lock(&mutex_);
  bool is_known = false;
  for (const Digest& known : digests_) {
    uint8_t difference = 0;
    for (size_t i = 0; i < known.size(); ++i) difference |= known[i] ^ digest[i];
    is_known |= difference == 0;
  }
  return is_known ? absl::OkStatus() : Unauthenticated("the token is not known");
}

}  // namespace foretoken::verifier
