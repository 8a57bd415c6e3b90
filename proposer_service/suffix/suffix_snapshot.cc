// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix/suffix_snapshot.h"

#include <sys/stat.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/base/write_file.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr absl::string_view kMagic = "FTSUFFIX";
constexpr uint32_t kVersion = 2;
constexpr uint32_t kOneVocabularyVersion = 1;  // one vocabulary for all texts, before their number
constexpr int kMaxUnused = 1000;  // files set aside beside one path; the error tells the operator to remove some

template <typename T>
void PutInteger(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));  // in the machine's byte order
}

void PutString(std::string& out, absl::string_view text) {
  PutInteger(out, static_cast<uint32_t>(text.size()));
  absl::StrAppend(&out, text);
}

base::Sha256Digest DigestOf(absl::string_view bytes) {
  base::Sha256 sha;
  sha.Update(bytes);
  return sha.Finish();
}

absl::string_view AsBytes(const base::Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};  // a digest is plain bytes
}

// Reads from the front of the bytes.
class Cursor {
 public:
  explicit Cursor(absl::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  absl::StatusOr<T> Integer() {
    FT_ASSIGN_OR_RETURN(const absl::string_view bytes, Bytes(sizeof(T)));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  absl::StatusOr<absl::string_view> Bytes(uint64_t length) {
    if (length > bytes_.size()) {
      return absl::DataLossError(absl::StrCat("expected ", length, " more bytes, got ", bytes_.size()));
    }
    const absl::string_view bytes = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return bytes;
  }
  absl::StatusOr<absl::string_view> String() {
    FT_ASSIGN_OR_RETURN(const uint32_t length, Integer<uint32_t>());
    return Bytes(length);
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  absl::string_view bytes_;
};

// Parses one text. Unset vocabulary: the text's own vocabulary comes first.
absl::StatusOr<SuffixText> ParseText(Cursor& cursor, std::optional<absl::string_view> vocabulary) {
  if (!vocabulary.has_value()) {
    FT_ASSIGN_OR_RETURN(vocabulary, cursor.String());
  }
  FT_ASSIGN_OR_RETURN(const absl::string_view tenant, cursor.String());
  SuffixText text = {.owner = {.vocabulary = std::string(*vocabulary), .tenant = std::string(tenant)}};
  FT_ASSIGN_OR_RETURN(const uint32_t num_tokens, cursor.Integer<uint32_t>());
  FT_ASSIGN_OR_RETURN(const absl::string_view bytes, cursor.Bytes(num_tokens * uint64_t{sizeof(int32_t)}));
  text.tokens.resize(num_tokens);
  if (num_tokens > 0) std::memcpy(text.tokens.data(), bytes.data(), bytes.size());
  for (const int32_t token_id : text.tokens) {
    constexpr int32_t kNumIds = std::numeric_limits<int32_t>::max();  // the number of ids is an int32
    if (token_id < 0 || token_id >= kNumIds) {
      return absl::DataLossError(absl::StrCat("expected token ids from 0 to below ", kNumIds, ", got ", token_id));
    }
  }
  return text;
}

absl::StatusOr<std::vector<SuffixText>> Parse(absl::string_view bytes) {
  Cursor cursor(bytes);
  FT_ASSIGN_OR_RETURN(const absl::string_view magic, cursor.Bytes(kMagic.size()));
  if (magic != kMagic) return absl::DataLossError("it is no snapshot of a suffix proposer");
  FT_ASSIGN_OR_RETURN(const uint32_t version, cursor.Integer<uint32_t>());
  if (version != kVersion && version != kOneVocabularyVersion) {
    return absl::FailedPreconditionError(absl::StrCat("version: expected ", kVersion, ", got ", version));
  }
  const size_t num_digested = bytes.size() - std::min(bytes.size(), sizeof(base::Sha256Digest));
  if (bytes.substr(num_digested) != AsBytes(DigestOf(bytes.substr(0, num_digested)))) {
    return absl::DataLossError("it is damaged or truncated: its checksum differs");
  }
  cursor = Cursor(bytes.substr(0, num_digested));
  FT_RETURN_IF_ERROR(cursor.Bytes(kMagic.size() + sizeof(version)).status());
  std::optional<absl::string_view> vocabulary;
  if (version == kOneVocabularyVersion) {
    FT_ASSIGN_OR_RETURN(vocabulary, cursor.String());
  }
  FT_ASSIGN_OR_RETURN(const uint64_t num_texts, cursor.Integer<uint64_t>());
  std::vector<SuffixText> texts;
  for (uint64_t i = 0; i < num_texts; ++i) {
    FT_ASSIGN_OR_RETURN(texts.emplace_back(), ParseText(cursor, vocabulary));
  }
  if (!cursor.at_end()) return absl::DataLossError("there are bytes behind its last text");
  return texts;
}

absl::Status FileError(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

// Renames the file to the first free name PATH.unused-N and returns that name. The caller holds the lock of the path,
// so no other proposer takes the name meanwhile.
absl::StatusOr<std::string> SetAside(const std::string& path) {
  for (int i = 1; i <= kMaxUnused; ++i) {
    std::string unused = absl::StrCat(path, ".unused-", i);
    struct stat info;
    if (lstat(unused.c_str(), &info) == 0) continue;
    if (errno != ENOENT) return FileError("look for", unused);
    if (rename(path.c_str(), unused.c_str()) != 0) return FileError("rename to", unused);
    return unused;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(path, ": expected at most ", kMaxUnused, " files ", path, ".unused-*, got as many: remove some"));
}

// A file that is no snapshot, where no proposer has been before: the flag names somebody else's file.
absl::Status CheckOwner(const std::string& path) {
  struct stat info;
  if (lstat((path + ".lock").c_str(), &info) == 0) return absl::OkStatus();
  const absl::StatusOr<base::MappedFile> file = base::MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return absl::OkStatus();
  if (!file.ok()) return absl::Status(file.status().code(), absl::StrCat("suffix_snapshot: ", file.status().message()));
  const absl::string_view bytes(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  if (bytes.empty() || absl::StartsWith(bytes, kMagic)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("suffix_snapshot: ", path, " is no snapshot of a suffix proposer: expected its path or a new one"));
}

}  // namespace

absl::StatusOr<std::vector<SuffixText>> ReadSnapshot(const std::string& path) {
  FT_ASSIGN_OR_RETURN(const base::MappedFile file, base::MappedFile::Open(path));
  absl::StatusOr<std::vector<SuffixText>> texts = Parse(
      {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});  // reads the bytes as characters
  if (texts.ok()) return texts;
  return absl::Status(texts.status().code(), absl::StrCat(path, ": ", texts.status().message()));
}

absl::Status WriteSnapshot(const std::string& path, std::span<const SuffixText> texts) {
  std::string bytes(kMagic);
  PutInteger(bytes, kVersion);
  PutInteger(bytes, static_cast<uint64_t>(texts.size()));
  for (const SuffixText& text : texts) {
    PutString(bytes, text.owner.vocabulary);
    PutString(bytes, text.owner.tenant);
    PutInteger(bytes, static_cast<uint32_t>(text.tokens.size()));
    bytes.append(reinterpret_cast<const char*>(text.tokens.data()),
                 text.tokens.size() * sizeof(int32_t));  // as in memory
  }
  absl::StrAppend(&bytes, AsBytes(DigestOf(bytes)));
  return base::WriteFile(path, bytes);
}

absl::StatusOr<std::unique_ptr<SuffixSnapshotFile>> SuffixSnapshotFile::Open(const std::string& path) {
  FT_RETURN_IF_ERROR(CheckOwner(path));
  absl::StatusOr<base::FileLock> lock = base::FileLock::Take(path + ".lock");
  if (absl::IsFailedPrecondition(lock.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("suffix_snapshot: expected a file of this proposer alone, got one that another uses: ",
                     lock.status().message()));
  }
  FT_RETURN_IF_ERROR(lock.status());
  absl::StatusOr<std::vector<SuffixText>> texts = ReadSnapshot(path);
  if (texts.ok()) {
    spdlog::info("suffix snapshot {}: {} outputs", path, texts->size());
  } else if (absl::IsDataLoss(texts.status()) || absl::IsFailedPrecondition(texts.status())) {
    FT_ASSIGN_OR_RETURN(const std::string unused, SetAside(path));
    spdlog::error("suffix snapshot not used, a new memory begins: {}; the file is kept as {}",
                  texts.status().ToString(), unused);
    texts.emplace();
  } else if (absl::IsNotFound(texts.status())) {
    texts.emplace();
  }
  FT_RETURN_IF_ERROR(texts.status());
  return std::unique_ptr<SuffixSnapshotFile>(new SuffixSnapshotFile(path, *std::move(lock), *std::move(texts)));
}

}  // namespace foretoken::proposer
