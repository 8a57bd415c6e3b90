// SPDX-License-Identifier: Apache-2.0
// Reads the input as four bytes that choose tokens, and as the form of a request. The form takes the way that the
// verifier sends forms: a compile process makes the grammar within its limits, and a matcher follows a text of the
// chosen tokens. This process compiles every form once more, because a search sees only what its own process does.
//
// Both grammars are equal, and their matchers too: the mask says what Accept takes, and Rollback leads back. Matchers
// give up at the same token. A text under a schema that has ended is JSON. A refusal names the request's field.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/status.h"
#include "kernels/check.h"
#include "nlohmann/json.hpp"
#include "verifier_service/api/format_conversion.h"
#include "verifier_service/api/request_bounds.h"
#include "verifier_service/grammar/compile_process.h"
#include "verifier_service/grammar/grammar_compiler.h"
#include "verifier_service/grammar/grammar_follower.h"
#include "verifier_service/grammar/grammar_matcher.h"
#include "verifier_service/grammar/special_tokens.h"

namespace foretoken::verifier {
namespace {

using Mask = std::vector<uint32_t>;

constexpr size_t kSeedBytes = 4;
// A text has so many tokens at random. Then it takes tokens that end texts where they may come.
constexpr size_t kFreeTokens = 24, kMaxTokens = 48;
constexpr int kTriedTokens = 8;  // per place
// The verifier ends a request whose masks take longer.
constexpr absl::Duration kMaxFollowTime = absl::Milliseconds(200);
// Less than the verifier's own, so that a search sees many forms.
constexpr CompileLimits kLimits = {.max_time = absl::Milliseconds(200), .max_grammar_bytes = int64_t{4} << 20};

// ASCII and some other bytes, longer tokens, a special token, an id without a token, and an end. A small vocabulary
// keeps masks quick.
GrammarTokens SmallVocabulary() {
  GrammarTokens tokens;
  for (char c = 0; c < 127; ++c) {
    const bool is_rare = c < 32 && c != '\n' && c != '\t' && c != '\x1f';
    if (!is_rare) tokens.bytes.emplace_back(1, c);
  }
  for (const char* const text :
       {"{\"", "\": ", ", \"", "\"}", "}}", "true", "null", "12", "ab", "\xC3\xA9", "\xC3", "\xA9", "a\"", "  "}) {
    tokens.bytes.emplace_back(text);
  }
  tokens.bytes.push_back(absl::StrCat(std::string(1, kSpecialMark), "<call>"));
  tokens.bytes.emplace_back();
  tokens.end_token_ids = {static_cast<int32_t>(tokens.bytes.size())};
  tokens.bytes.emplace_back();
  return tokens;
}

const GrammarTokens& Tokens() {
  static const auto& tokens = *new GrammarTokens(SmallVocabulary());
  return tokens;
}
int32_t IdOf(absl::string_view bytes) {
  return static_cast<int32_t>(std::ranges::find(Tokens().bytes, bytes) - Tokens().bytes.begin());
}
int32_t NumTokens() { return static_cast<int32_t>(Tokens().bytes.size()); }

bool Allows(const Mask& mask, int32_t id) {
  return id >= 0 && id < NumTokens() && (mask[static_cast<size_t>(id) / 32] >> id % 32 & 1) != 0;
}

// A number beyond a double is valid, too.
bool IsJson(const std::string& text) {
  try {
    return !nlohmann::json::parse(text).is_discarded();
  } catch (const nlohmann::json::out_of_range&) {
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

// Follows one text with the matchers of two equal grammars.
class Text {
 public:
  Text(std::shared_ptr<const Grammar> sent, std::shared_ptr<const Grammar> compiled, uint32_t seed)
      : sent_(std::move(sent)), compiled_(std::move(compiled)), random_(seed) {}

  void Follow() {
    const absl::Time begin = ThreadTime();
    const std::optional<Mask> first = NextMask();
    for (std::optional<Mask> mask = first; mask.has_value() && num_tokens_ < kMaxTokens; mask = NextMask()) {
      for (int i = 0; i < kTriedTokens; ++i) Try(static_cast<int32_t>(Below(NumTokens() + 2)) - 1, *mask);
      const std::optional<int32_t> id = Choose(*mask);
      if (!id.has_value() || !Append(*id)) break;
      if (sent_.has_ended() || ThreadTime() - begin > kMaxFollowTime) break;
    }
    has_ended_ = sent_.has_ended();
    if (has_ended_) CheckEnd();
    sent_.Rollback(static_cast<int32_t>(num_tokens_));
    compiled_.Rollback(static_cast<int32_t>(num_tokens_));
    if (first.has_value()) FT_CHECK(NextMask() == first);
  }

  bool has_ended() const { return has_ended_; }
  const std::string& bytes() const { return bytes_; }

 private:
  uint32_t Below(int32_t count) { return static_cast<uint32_t>(random_()) % static_cast<uint32_t>(count); }

  // Unset: the matchers gave up.
  std::optional<Mask> NextMask() {
    Mask sent((NumTokens() + 31) / 32), compiled(sent.size());
    sent_.FillMask(sent);
    compiled_.FillMask(compiled);
    FT_CHECK(sent == compiled && sent_.has_given_up() == compiled_.has_given_up());
    if (sent_.has_given_up()) return std::nullopt;
    return sent;
  }

  void Try(int32_t id, const Mask& mask) {
    const bool is_accepted = sent_.Accept(id);
    FT_CHECK(is_accepted == Allows(mask, id) || sent_.has_given_up());
    if (is_accepted) sent_.Rollback(1);
  }

  // Unset: no token can follow.
  std::optional<int32_t> Choose(const Mask& mask) {
    static const int32_t kClosing[] = {Tokens().end_token_ids.front(), IdOf("\""), IdOf("}"), IdOf("]")};
    if (num_tokens_ >= kFreeTokens) {
      for (const int32_t id : kClosing) {
        if (Allows(mask, id)) return id;
      }
    }
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < NumTokens(); ++id) {
      if (Allows(mask, id)) ids.push_back(id);
    }
    if (ids.empty()) return std::nullopt;
    return ids[Below(static_cast<int32_t>(ids.size()))];
  }

  // False: the matchers gave up.
  bool Append(int32_t id) {
    const bool is_accepted = sent_.Accept(id);
    FT_CHECK(compiled_.Accept(id) == is_accepted);
    FT_CHECK(is_accepted || sent_.has_given_up());
    if (!is_accepted) return false;
    ++num_tokens_;
    bytes_ += Tokens().bytes[static_cast<size_t>(id)];
    return true;
  }

  void CheckEnd() {
    FT_CHECK(NextMask() == Mask((NumTokens() + 31) / 32));
    for (int32_t id = 0; id < NumTokens(); ++id) FT_CHECK(!sent_.Accept(id));
  }

  GrammarMatcher sent_, compiled_;
  std::minstd_rand random_;
  size_t num_tokens_ = 0;
  std::string bytes_;
  bool has_ended_ = false;
};

class Compiler {
 public:
  Compiler() {
    const GrammarSource known[] = {
        {.kind = GrammarKind::kJsonSchema, .text = R"({"type": "array", "items": {"enum": ["a", 1]}})"},
        {.kind = GrammarKind::kRegex, .text = "[a-c]+(px|em)"},
        {.kind = GrammarKind::kEbnf, .text = "root ::= \"(\" root \")\" | \"x\""},
        {.kind = GrammarKind::kStructuralTag,
         .text = R"({"format": {"type": "tag", "begin": "<call>f", "content": {"type": "any_text"}, "end": "!"}})"}};
    for (const GrammarSource& source : known) FT_CHECK(CompileAndFollow(source, /*seed=*/1).ok());
  }

  // Sends the form to the compile process, and follows a text of it. The refusal if it has none.
  absl::Status CompileAndFollow(const GrammarSource& source, uint32_t seed) {
    const absl::StatusOr<std::string> sent = process_.Compile(source);
    if (base::ReasonOf(sent.status()) == kFormatTooCostly) return sent.status();
    const auto compiled = Grammar::Compile(source, vocabulary_);
    FT_CHECK(compiled.status() == sent.status() || absl::StrContains(compiled.status().message(), "memory"));
    if (!sent.ok()) return sent.status();
    const auto parsed = Grammar::Parse(*sent, vocabulary_);
    FT_CHECK(parsed.ok() && (*compiled)->Serialize() == *sent);
    Text text(*parsed, *compiled, seed);
    text.Follow();
    if (text.has_ended() && source.kind == GrammarKind::kJsonSchema) FT_CHECK(IsJson(text.bytes()));
    return absl::OkStatus();
  }

 private:
  const GrammarVocabulary vocabulary_{Tokens()};
  CompileProcess process_{GrammarCompilerOptions().program, Tokens(), kLimits};
};

void CheckRequest(absl::string_view bytes, uint32_t seed) {
  static const ServedModel model = {.vocabulary_size = NumTokens(), .end_token_ids = Tokens().end_token_ids};
  static const RequestBounds bounds(model);
  // Not leaked: its end waits for the compile process, whose processor time then counts as this one's.
  static Compiler compiler;
  v1::GenerateRequest form, request;
  if (!form.mutable_response_format()->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  if (!rpc::ParseMessage(form.SerializeAsString(), bounds.generate, request).ok()) return;
  const absl::StatusOr<std::optional<GrammarSource>> source = ConvertFormat(request, model);
  if (!source.ok()) {
    FT_CHECK(absl::IsInvalidArgument(source.status()) && !base::FieldOf(source.status()).empty());
    return;
  }
  const absl::Status status = compiler.CompileAndFollow(**source, seed);
  if (status.ok()) return;
  const absl::Status error = FormatError(request.response_format(), status);
  FT_CHECK(absl::IsInvalidArgument(error) && absl::StartsWith(base::FieldOf(error), "response_format."));
}

}  // namespace
}  // namespace foretoken::verifier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken::verifier;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  uint32_t seed = 0;
  for (const char c : input.substr(0, kSeedBytes)) seed = seed << 8 | static_cast<unsigned char>(c);
  CheckRequest(input.substr(std::min(size, kSeedBytes)), seed);
  return 0;
}
