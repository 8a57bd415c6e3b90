// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/grammar_compiler.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"
#include "spdlog/spdlog.h"
#include "verifier_service/grammar/compile_places.h"

namespace foretoken::verifier {
namespace {

constexpr int64_t kEntryBytes = 512;  // of an entry without its grammar

std::string KeyOf(const GrammarSource& source) {
  base::Sha256 digest;
  digest.UpdateInteger(static_cast<uint64_t>(source.kind));
  digest.Update(source.text);
  return base::ToHex(digest.Finish());
}

// The grammar, which counts until the last of its users has gone.
std::shared_ptr<const Grammar> Counted(std::shared_ptr<const Grammar> grammar,
                                       std::shared_ptr<std::atomic<int64_t>> num_live_bytes) {
  const auto num_bytes = static_cast<int64_t>(grammar->num_bytes());
  *num_live_bytes += num_bytes;
  const Grammar* const counted = grammar.get();
  return {counted, [grammar = std::move(grammar), num_live_bytes = std::move(num_live_bytes),
                    num_bytes](const Grammar*) mutable {
            grammar.reset();
            *num_live_bytes -= num_bytes;
          }};
}

}  // namespace

GrammarCompiler::GrammarCompiler(GrammarCompilerOptions options, GrammarTokens tokens)
    : options_(std::move(options)),
      tokens_(std::move(tokens)),
      num_live_bytes_(std::make_shared<std::atomic<int64_t>>(0)) {}

std::optional<GrammarCompiler::Result> GrammarCompiler::Find(const GrammarSource& source) {
  return FindKey(KeyOf(source));
}

std::optional<GrammarCompiler::Result> GrammarCompiler::FindKey(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->result;
}

GrammarCompiler::Result GrammarCompiler::Get(const GrammarSource& source) {
  const std::string key = KeyOf(source);
  absl::MutexLock lock(&process_mutex_);
  if (std::optional<Result> cached = FindKey(key)) return *std::move(cached);
  if (const int64_t num_bytes = num_held_bytes(); num_bytes >= options_.max_held_bytes) {
    return GrammarsFull(absl::StrCat("requests hold ", num_bytes, " bytes of compiled formats"));
  }
  Result result = Compile(source);
  if (result.ok() || absl::IsInvalidArgument(result.status())) {
    const int64_t num_bytes = result.ok() ? static_cast<int64_t>((*result)->num_bytes()) : 0;
    Add({.key = key, .result = result, .num_bytes = kEntryBytes + num_bytes});
  } else if (const std::optional<std::string> line = fault_lines_.Pass(
                 absl::StrCat("the compiler of response formats: ", result.status().message()), SteadyNow())) {
    spdlog::error("{}", *line);
  }
  return result;
}

GrammarCompiler::Result GrammarCompiler::Compile(const GrammarSource& source) {
  if (process_ == nullptr) {
    vocabulary_.emplace(tokens_);
    process_ = std::make_unique<CompileProcess>(options_.program, std::exchange(tokens_, {}), options_.limits);
  }
  FT_ASSIGN_OR_RETURN(const std::string serialized, process_->Compile(source));
  FT_ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, Grammar::Parse(serialized, *vocabulary_));
  return Counted(std::move(grammar), num_live_bytes_);
}

void GrammarCompiler::Add(Entry entry) {
  absl::MutexLock lock(&mutex_);
  num_cached_bytes_ += entry.num_bytes;
  entries_.push_front(std::move(entry));
  by_key_[entries_.front().key] = entries_.begin();
  while (num_cached_bytes_ > options_.max_cache_bytes && entries_.size() > 1) {
    num_cached_bytes_ -= entries_.back().num_bytes;
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

int64_t GrammarCompiler::num_cached_bytes() const {
  absl::MutexLock lock(&mutex_);
  return num_cached_bytes_;
}

int64_t GrammarCompiler::num_held_bytes() const {
  absl::MutexLock lock(&mutex_);
  return *num_live_bytes_ - (num_cached_bytes_ - kEntryBytes * static_cast<int64_t>(entries_.size()));
}

}  // namespace foretoken::verifier
