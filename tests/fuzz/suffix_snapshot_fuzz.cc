// SPDX-License-Identifier: Apache-2.0
// Reads the input as a snapshot of the suffix proposer, once as it is and once with the checksum that it should have.
// The texts of an accepted file come back equal when they are written and read again, a memory can learn them, and a
// session of their owner makes trees of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "common/base/sha256.h"
#include "kernels/check.h"
#include "proposer_service/suffix/suffix_memory.h"
#include "proposer_service/suffix/suffix_session.h"
#include "proposer_service/suffix/suffix_snapshot.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::proposer {
namespace {

constexpr int32_t kNodes = 16;

bool AreEqual(const SuffixText& a, const SuffixText& b) { return a.owner == b.owner && a.tokens == b.tokens; }

void CheckLearning(const std::vector<SuffixText>& texts) {
  SuffixMemory memory({.max_depth = 8, .max_tokens = 256});
  for (const SuffixText& text : texts) memory.Remember(text.owner, text.tokens);
  FT_CHECK(SuffixMemory::Reader(memory).tree().CheckIntegrity());
  const SuffixOptions options = {.max_depth = 8, .min_path_chance = 0};
  for (const SuffixText& text : std::span(texts).first(std::min<size_t>(texts.size(), 8))) {
    SuffixSession session(options, memory, text.owner, [](const SuffixText&) {});
    session.Append(std::span(text.tokens).first(std::min<size_t>(text.tokens.size() / 2, 64)));
    session.Want({.node_budget = kNodes});
    const speculation::TokenTree tree = session.Propose(kNodes);
    FT_CHECK(speculation::Validate(tree, std::numeric_limits<int32_t>::max(), kNodes).ok());
  }
}

void CheckFile(const testing::TempDir& directory, const std::string& bytes) {
  const absl::StatusOr<std::vector<SuffixText>> texts = ReadSnapshot(directory.Write("snapshot", bytes));
  if (!texts.ok()) {
    const absl::StatusCode code = texts.status().code();  // INVALID_ARGUMENT: the file is a pointer of Git LFS
    FT_CHECK(code == absl::StatusCode::kDataLoss || code == absl::StatusCode::kFailedPrecondition ||
             code == absl::StatusCode::kInvalidArgument);
    return;
  }
  const std::string path = directory.path() + "/written";
  FT_CHECK(WriteSnapshot(path, *texts).ok());
  const absl::StatusOr<std::vector<SuffixText>> again = ReadSnapshot(path);
  FT_CHECK(again.ok() && std::ranges::equal(*again, *texts, AreEqual));
  CheckLearning(*texts);
}

}  // namespace
}  // namespace foretoken::proposer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;
  static const testing::TempDir directory;
  const std::string input(reinterpret_cast<const char*>(data), size);
  proposer::CheckFile(directory, input);
  base::Sha256 sha;
  sha.Update(input);
  const base::Sha256Digest digest = sha.Finish();
  proposer::CheckFile(directory, input + std::string(digest.begin(), digest.end()));
  return 0;
}
