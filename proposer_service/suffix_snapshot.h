// SPDX-License-Identifier: Apache-2.0
// The outputs that a suffix proposer remembers, as a file. Texts only: the tree is built from them again, at about a
// million tokens per second.
//
// Format, integers little-endian: "FTSUFFIX", version u32, vocabulary (u32 length, bytes), u64 number of texts, each
// (u32 length, bytes) of the tenant and (u32 number, i32 each) of the tokens; at the end the SHA-256 of all before it.
//
// Errors of ReadSnapshot: NOT_FOUND without a file; DATA_LOSS, naming the file and what is wrong, where it is truncated
// or damaged; FAILED_PRECONDITION for another version, expected and got.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proposer_service/suffix_memory.h"

namespace foretoken::proposer {

struct SuffixSnapshot {
  std::string vocabulary;         // fingerprint in hex; empty: not known
  std::vector<SuffixText> texts;  // oldest first
};

absl::StatusOr<SuffixSnapshot> ReadSnapshot(const std::string& path);

// The file is there whole or as it was before: it is written beside its place, brought to the disk, and then renamed.
absl::Status WriteSnapshot(const std::string& path, const SuffixSnapshot& snapshot);

}  // namespace foretoken::proposer
