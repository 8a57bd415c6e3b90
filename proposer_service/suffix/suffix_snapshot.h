// SPDX-License-Identifier: Apache-2.0
// The outputs that a suffix proposer remembers, as a file. Texts only: the tree is built from them again, at about a
// million tokens per second.
//
//   FT_ASSIGN_OR_RETURN(const std::unique_ptr<SuffixSnapshotFile> file, SuffixSnapshotFile::Open("/var/lib/outputs"));
//   for (SuffixText& text : file->TakeTexts()) ...
//   FT_RETURN_IF_ERROR(file->Write(memory.Texts()));
//
// Format, integers little-endian: "FTSUFFIX", version u32, u64 number of texts, each (u32 length, bytes) of the
// vocabulary, (u32 length, bytes) of the tenant and (u32 number, i32 each) of the tokens; at the end the SHA-256 of all
// before it. Version 1, which is read too, has one vocabulary, before the number of texts, for all of them.
//
// A file has one proposer. Open takes the lock PATH.lock for as long as the object lives, so two replicas that are
// given one path by mistake do not write over each other: the second one does not start.
//
// Errors of ReadSnapshot: NOT_FOUND without a file; DATA_LOSS, naming the file and what is wrong, where it is truncated
// or damaged; FAILED_PRECONDITION for another version, expected and got.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/file_lock.h"
#include "proposer_service/suffix/suffix_memory.h"

namespace foretoken::proposer {

// Oldest first.
absl::StatusOr<std::vector<SuffixText>> ReadSnapshot(const std::string& path);

// The file is there whole or as it was before: it is written beside its place, brought to the disk, and then renamed.
absl::Status WriteSnapshot(const std::string& path, std::span<const SuffixText> texts);

class SuffixSnapshotFile {
 public:
  // Reads what is there. A file that is damaged, or no snapshot, is kept as PATH.unused-1, or the next free number, and
  // named in the log. FAILED_PRECONDITION: another proposer has the file. Other errors: the file cannot be read, locked
  // or renamed.
  static absl::StatusOr<std::unique_ptr<SuffixSnapshotFile>> Open(const std::string& path);

  // What the file held; empty from then on.
  std::vector<SuffixText> TakeTexts() { return std::exchange(texts_, {}); }
  absl::Status Write(std::span<const SuffixText> texts) { return WriteSnapshot(path_, texts); }
  const std::string& path() const { return path_; }

 private:
  SuffixSnapshotFile(std::string path, base::FileLock lock, std::vector<SuffixText> texts)
      : path_(std::move(path)), lock_(std::move(lock)), texts_(std::move(texts)) {}

  const std::string path_;
  const base::FileLock lock_;
  std::vector<SuffixText> texts_;
};

}  // namespace foretoken::proposer
