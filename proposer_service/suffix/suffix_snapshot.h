// SPDX-License-Identifier: Apache-2.0
// The file of a suffix proposer's remembered outputs. The file holds texts only. The proposer builds its tree from them
// again, at about a million tokens per second.
//
//   FT_ASSIGN_OR_RETURN(const std::unique_ptr<SuffixSnapshotFile> file, SuffixSnapshotFile::Open("/var/lib/outputs"));
//   for (SuffixText& text : file->TakeTexts()) ...
//   FT_RETURN_IF_ERROR(file->Write(memory.Texts()));
//
// Format, integers little-endian: "FTSUFFIX", version u32, u64 number of texts, each (u32 length, bytes) of the
// vocabulary, (u32 length, bytes) of the tenant and (u32 number, i32 each) of the tokens; at the end the SHA-256 of all
// bytes before it. ReadSnapshot also reads version 1, in which one vocabulary for all texts stands before their number.
//
// A file belongs to one proposer. Open takes the lock PATH.lock for the lifetime of the object. So a second replica
// with the same path does not start, and cannot overwrite the file.
//
// Errors of ReadSnapshot: those of MappedFile::Open, for example NOT_FOUND without a file; DATA_LOSS for a truncated or
// damaged file, with the file and the defect; FAILED_PRECONDITION for another version, expected and got.
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

// The texts, oldest first.
absl::StatusOr<std::vector<SuffixText>> ReadSnapshot(const std::string& path);

// Replaces the file as a whole: it writes a file beside the path, syncs it to the disk and renames it.
absl::Status WriteSnapshot(const std::string& path, std::span<const SuffixText> texts);

class SuffixSnapshotFile {
 public:
  // Locks and reads the file. Open renames a damaged file, or a file that is no snapshot, to PATH.unused-1 or the next
  // free number and logs that name. INVALID_ARGUMENT: a file that is no snapshot, and no PATH.lock beside it, so it is
  // not a proposer's. FAILED_PRECONDITION: another proposer uses the file. Other errors: the file cannot be read,
  // locked or renamed.
  static absl::StatusOr<std::unique_ptr<SuffixSnapshotFile>> Open(const std::string& path);

  // The texts of the file. Later calls return nothing.
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
