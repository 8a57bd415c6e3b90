// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/grammar_compiler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"
#include "spdlog/spdlog.h"
#include "verifier_service/grammar/compile_places.h"

namespace foretoken::verifier {
namespace {

constexpr int64_t kEntryBytes = 512 + kMaxRefusalBytes;  // of an entry without its grammar

std::string KeyOf(const GrammarSource& source) {
  base::Sha256 digest;
  digest.UpdateInteger(static_cast<uint64_t>(source.kind));
  digest.Update(source.text);
  return base::ToHex(digest.Finish());
}

}  // namespace

void GrammarCompiler::GrammarBytes::Add(const std::string& tenant, int64_t num_bytes) {
  total += num_bytes;
  const auto of_tenant = by_tenant.try_emplace(tenant).first;
  if ((of_tenant->second += num_bytes) == 0) by_tenant.erase(of_tenant);
}

int64_t GrammarCompiler::GrammarBytes::Of(const std::string& tenant) const {
  const auto of_tenant = by_tenant.find(tenant);
  return of_tenant == by_tenant.end() ? 0 : of_tenant->second;
}

// The grammar, which counts until the last of its users has gone.
std::shared_ptr<const Grammar> GrammarCompiler::Counted(std::shared_ptr<const Grammar> grammar,
                                                        const std::string& tenant, std::shared_ptr<LiveBytes> live) {
  const auto num_bytes = static_cast<int64_t>(grammar->num_bytes());
  const auto add = [tenant, live = std::move(live)](int64_t num_bytes) {
    absl::MutexLock lock(&live->mutex);
    live->bytes.Add(tenant, num_bytes);
  };
  add(num_bytes);
  const Grammar* const counted = grammar.get();
  return {counted, [grammar = std::move(grammar), add, num_bytes](const Grammar*) mutable {
            grammar.reset();
            add(-num_bytes);
          }};
}

GrammarCompiler::GrammarCompiler(GrammarCompilerOptions options, GrammarTokens tokens)
    : options_(std::move(options)), tokens_(std::move(tokens)), live_(std::make_shared<LiveBytes>()) {}

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

absl::Status GrammarCompiler::CheckHeld(const std::string& tenant) const {
  const int64_t of_tenant = num_held_bytes(tenant);
  const int64_t room = of_tenant > 0 ? 1 : 2;  // so that a few tenants cannot keep the others out
  if (const int64_t num_bytes = num_held_bytes(); num_bytes / room >= options_.max_held_bytes) {
    return GrammarsFull(absl::StrCat("requests hold ", num_bytes, " bytes of compiled formats"));
  }
  if (of_tenant >= std::max<int64_t>(options_.max_held_bytes / 2, 1)) {
    return GrammarsFull(absl::StrCat("requests hold ", of_tenant, " bytes of this tenant's compiled formats"));
  }
  return absl::OkStatus();
}

GrammarCompiler::Result GrammarCompiler::Get(const GrammarSource& source, const std::string& tenant) {
  const std::string key = KeyOf(source);
  absl::MutexLock lock(&process_mutex_);
  if (std::optional<Result> cached = FindKey(key)) return *std::move(cached);
  FT_RETURN_IF_ERROR(CheckHeld(tenant));
  Result result = Compile(source, tenant);
  if (result.ok() || absl::IsInvalidArgument(result.status())) {
    const int64_t num_bytes = result.ok() ? static_cast<int64_t>((*result)->num_bytes()) : 0;
    Add({.key = key, .result = result, .tenant = tenant, .num_bytes = num_bytes});
  } else if (const std::optional<std::string> line = fault_lines_.Pass(
                 absl::StrCat("the compiler of response formats: ", result.status().message()), SteadyNow())) {
    spdlog::error("{}", *line);
  }
  return result;
}

GrammarCompiler::Result GrammarCompiler::Compile(const GrammarSource& source, const std::string& tenant) {
  if (process_ == nullptr) {
    vocabulary_.emplace(tokens_);
    process_ = std::make_unique<CompileProcess>(options_.program, std::exchange(tokens_, {}), options_.limits);
  }
  FT_ASSIGN_OR_RETURN(const std::string serialized, process_->Compile(source));
  FT_ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, Grammar::Parse(serialized, *vocabulary_));
  return Counted(std::move(grammar), tenant, live_);
}

void GrammarCompiler::Add(Entry entry) {
  absl::MutexLock lock(&mutex_);
  num_cached_bytes_ += kEntryBytes + entry.num_bytes;
  cached_.Add(entry.tenant, entry.num_bytes);
  entries_.push_front(std::move(entry));
  by_key_[entries_.front().key] = entries_.begin();
  while (num_cached_bytes_ > options_.max_cache_bytes && entries_.size() > 1) {
    const Entry& last = entries_.back();
    num_cached_bytes_ -= kEntryBytes + last.num_bytes;
    cached_.Add(last.tenant, -last.num_bytes);
    by_key_.erase(last.key);
    entries_.pop_back();
  }
}

int64_t GrammarCompiler::num_cached_bytes() const {
  absl::MutexLock lock(&mutex_);
  return num_cached_bytes_;
}

int64_t GrammarCompiler::num_held_bytes() const {
  absl::MutexLock lock(&mutex_);
  absl::MutexLock live_lock(&live_->mutex);
  return live_->bytes.total - cached_.total;
}

int64_t GrammarCompiler::num_held_bytes(const std::string& tenant) const {
  absl::MutexLock lock(&mutex_);
  absl::MutexLock live_lock(&live_->mutex);
  return live_->bytes.Of(tenant) - cached_.Of(tenant);
}

}  // namespace foretoken::verifier
