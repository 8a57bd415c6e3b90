// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/tokenizer.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/gguf/model_files.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/json_value.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/post_processor.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/token_ids.h"
#include "common/tokenizer/token_model.h"
#include "common/tokenizer/unicode/utf8.h"

namespace foretoken::tokenizer {
namespace {

// The search may compare the whole of an added token at every place of a text. Real ones have at most some 40 bytes.
constexpr size_t kMaxAddedTokenBytes = 256;

absl::Status CheckModel(const JsonValue& root) {
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> model, root.OptionalMember("model"));
  return model ? TokenModel::CheckSupported(*model) : absl::OkStatus();  // without a model, a later step reports it
}

absl::StatusOr<std::vector<AddedToken>> AddedTokensFromJson(const JsonValue& root, const TokenIds& ids) {
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> list, root.OptionalMember("added_tokens"));
  if (!list) return std::vector<AddedToken>();
  FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> elements, list->Elements());
  std::vector<AddedToken> tokens;
  absl::flat_hash_map<std::string, int32_t> seen;
  for (const JsonValue& element : elements) {
    AddedToken token;
    FT_ASSIGN_OR_RETURN(const JsonValue id, element.Member("id"));
    FT_ASSIGN_OR_RETURN(token.id, id.TokenId());
    FT_ASSIGN_OR_RETURN(token.content, element.StringMember("content"));
    FT_ASSIGN_OR_RETURN(token.special, element.BoolOr("special", false));
    FT_ASSIGN_OR_RETURN(token.normalized, element.BoolOr("normalized", !token.special));
    FT_ASSIGN_OR_RETURN(token.lstrip, element.BoolOr("lstrip", false));
    FT_ASSIGN_OR_RETURN(token.rstrip, element.BoolOr("rstrip", false));
    FT_ASSIGN_OR_RETURN(token.single_word, element.BoolOr("single_word", false));
    if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) {
      return element.Error(
          absl::StrCat("content: expected 1 to ", kMaxAddedTokenBytes, " bytes, got ", token.content.size()));
    }
    const auto it = ids.find(token.content);
    if (it != ids.end() && it->second != token.id) return id.Expected(absl::StrCat(it->second, " as in model.vocab"));
    const auto [other, is_new] = seen.try_emplace(token.content, token.id);
    if (!is_new && other->second != token.id) {
      return id.Error(absl::StrCat("\"", token.content, "\" is listed twice, also with id ", other->second));
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// The special tokens that the model makes of no text. One of a single character stays, because the character has no
// other token.
ReservedIds ReservedOf(const std::vector<AddedToken>& added) {
  ReservedIds reserved;
  for (const AddedToken& token : added) {
    if (token.special && token.content.size() > Utf8Length(token.content[0])) reserved.insert(token.id);
  }
  return reserved;
}

// A file with one very large id could make arrays of gigabytes.
absl::Status CheckIdRange(const JsonValue& root, const TokenIds& ids, const std::vector<AddedToken>& added) {
  const size_t max_id = MaxId(ids.size() + added.size());
  for (const AddedToken& token : added) {
    if (static_cast<size_t>(token.id) <= max_id) continue;
    return root.Error(
        absl::StrCat("added token \"", token.content, "\": expected an id up to ", max_id, ", got ", token.id));
  }
  return absl::OkStatus();
}

struct VocabularyArgs {
  const JsonValue& root;
  const TokenIds& ids;
  const std::vector<AddedToken>& added;
  const Normalizer& normalizer;
  const Decoder& decoder;
};

absl::StatusOr<Vocabulary> MakeVocabulary(const VocabularyArgs& args) {
  const auto& [root, ids, added, normalizer, decoder] = args;
  FT_RETURN_IF_ERROR(CheckIdRange(root, ids, added));
  int32_t max_id = -1;
  for (const auto& [spelling, id] : ids) max_id = std::max(max_id, id);
  for (const AddedToken& token : added) max_id = std::max(max_id, token.id);
  std::vector<std::optional<Token>> tokens(max_id + 1);
  for (const auto& [spelling, id] : ids) tokens[id] = Token{.spelling = spelling, .bytes = decoder.BytesOf(spelling)};
  for (const AddedToken& token : added) {
    std::optional<Token>& slot = tokens[token.id];
    if (slot && slot->spelling != token.content) {
      return root.Error(absl::StrCat("added token \"", token.content, "\": its id ", token.id, " is already that of \"",
                                     slot->spelling, "\""));
    }
    const bool was_special = slot && slot->special;
    slot = Token{.spelling = token.content,
                 .bytes = decoder.BytesOf(token.normalized ? normalizer.Apply(token.content) : token.content),
                 .special = token.special || was_special};
  }
  return Vocabulary(std::move(tokens));
}

// Matches the tokens whose `normalized` is the given one.
AddedTokenMatcher MakeMatcher(const std::vector<AddedToken>& all, bool normalized, const Normalizer& normalizer) {
  std::vector<AddedToken> tokens;
  std::vector<std::string> patterns;
  for (const AddedToken& token : all) {
    if (token.normalized != normalized) continue;
    std::string pattern = normalized ? normalizer.Apply(token.content) : token.content;
    if (pattern.empty()) continue;
    tokens.push_back(token);
    patterns.push_back(std::move(pattern));
  }
  return AddedTokenMatcher(std::move(tokens), patterns);
}

absl::StatusOr<Surroundings> ReadSurroundings(const JsonValue& root, const std::string& directory,
                                              const Vocabulary& vocabulary) {
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> json, root.OptionalMember("post_processor"));
  FT_ASSIGN_OR_RETURN(std::optional<Surroundings> surroundings, SurroundingsFromPostProcessor(json, vocabulary));
  if (surroundings) return *std::move(surroundings);
  constexpr const char* kFileName = "tokenizer_config.json";
  const absl::StatusOr<nlohmann::json> config = gguf::ReadModelJson(directory, kFileName);
  if (absl::IsNotFound(config.status())) return Surroundings();
  FT_RETURN_IF_ERROR(config.status());
  const std::string path = gguf::ModelFileName(directory, kFileName);
  return SurroundingsFromConfig(JsonValue(*config, path), vocabulary);
}

// The ranges' parts in [begin, end), counted from `begin`.
std::vector<TextRange> RangesWithin(std::span<const TextRange> ranges, size_t begin, size_t end) {
  std::vector<TextRange> within;
  const auto first = std::lower_bound(ranges.begin(), ranges.end(), begin,
                                      [](const TextRange& range, size_t at) { return range.end <= at; });
  for (auto range = first; range != ranges.end() && range->begin < end; ++range) {
    within.push_back({.begin = std::max(range->begin, begin) - begin, .end = std::min(range->end, end) - begin});
  }
  return within;
}

}  // namespace

struct Tokenizer::Parts {
  std::string path;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenModel model;
  Decoder decoder;
  Vocabulary vocabulary;
  size_t num_model_ids;                  // the largest id of the model's own tokens plus one
  AddedTokenMatcher raw_matcher;         // searches before normalisation
  AddedTokenMatcher normalized_matcher;  // searches after it
  Surroundings surroundings;

  // Encodes text that has no added tokens of the first kind. The ranges count from its beginning.
  absl::Status EncodeText(RangedText text, bool is_first, bool parse_special, std::vector<int32_t>& out) const {
    const RangedText normalized = normalizer.Apply(std::move(text));
    const bool has_ranges = !parse_special && !normalized.ranges.empty();
    for (const TextPart& part : has_ranges ? normalized_matcher.Split(normalized.text, normalized.ranges)
                                           : normalized_matcher.Split(normalized.text, parse_special)) {
      if (part.id) {
        out.push_back(*part.id);
        continue;
      }
      const bool part_is_first = is_first && part.text.data() == normalized.text.data();
      FT_ASSIGN_OR_RETURN(const Words words, pre_tokenizer.Apply(part.text, part_is_first));
      for (const absl::string_view word : words.words) FT_RETURN_IF_ERROR(model.Encode(word, out));
    }
    return absl::OkStatus();
  }
};

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

absl::StatusOr<Tokenizer> Tokenizer::Load(const std::string& directory) {
  constexpr const char* kFileName = "tokenizer.json";
  FT_ASSIGN_OR_RETURN(const nlohmann::json json, gguf::ReadModelJson(directory, kFileName));
  const std::string path = gguf::ModelFileName(directory, kFileName);
  const JsonValue root(json, path);
  FT_RETURN_IF_ERROR(CheckModel(root));
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> normalizer_json, root.OptionalMember("normalizer"));
  FT_ASSIGN_OR_RETURN(Normalizer normalizer, Normalizer::FromJson(normalizer_json));
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> pre_tokenizer_json, root.OptionalMember("pre_tokenizer"));
  FT_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::FromJson(pre_tokenizer_json));
  FT_ASSIGN_OR_RETURN(const JsonValue decoder_json, root.Member("decoder"));
  FT_ASSIGN_OR_RETURN(Decoder decoder, Decoder::FromJson(decoder_json));
  FT_ASSIGN_OR_RETURN(const JsonValue model_json, root.Member("model"));
  FT_ASSIGN_OR_RETURN(const TokenIds ids, TokenModel::ReadIds(model_json));
  FT_ASSIGN_OR_RETURN(const std::vector<AddedToken> added, AddedTokensFromJson(root, ids));
  FT_ASSIGN_OR_RETURN(TokenModel model,
                      TokenModel::FromJson(model_json, ids, ReservedOf(added), pre_tokenizer.is_byte_level()));
  FT_ASSIGN_OR_RETURN(Vocabulary vocabulary, MakeVocabulary({root, ids, added, normalizer, decoder}));
  size_t num_model_ids = 0;
  for (const auto& [token, id] : ids) num_model_ids = std::max(num_model_ids, static_cast<size_t>(id) + 1);
  FT_ASSIGN_OR_RETURN(Surroundings surroundings, ReadSurroundings(root, directory, vocabulary));
  AddedTokenMatcher raw_matcher = MakeMatcher(added, /*normalized=*/false, normalizer);
  AddedTokenMatcher normalized_matcher = MakeMatcher(added, /*normalized=*/true, normalizer);
  return Tokenizer(std::unique_ptr<const Parts>(new Parts{.path = path,
                                                          .normalizer = std::move(normalizer),
                                                          .pre_tokenizer = std::move(pre_tokenizer),
                                                          .model = std::move(model),
                                                          .decoder = std::move(decoder),
                                                          .vocabulary = std::move(vocabulary),
                                                          .num_model_ids = num_model_ids,
                                                          .raw_matcher = std::move(raw_matcher),
                                                          .normalized_matcher = std::move(normalized_matcher),
                                                          .surroundings = std::move(surroundings)}));
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::string_view text, const EncodeOptions& options) const {
  if (const std::optional<size_t> at = FirstInvalidUtf8(text)) {
    return absl::InvalidArgumentError(absl::StrCat("text: expected UTF-8, got an invalid sequence at byte ", *at));
  }
  const bool add_special_tokens = options.add_special_tokens.value_or(true);
  const Surroundings& surroundings = parts_->surroundings;
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = surroundings.before;
  const bool has_ranges = !options.parse_special && !options.special_ranges.empty();
  for (const TextPart& part : has_ranges ? parts_->raw_matcher.Split(text, options.special_ranges)
                                         : parts_->raw_matcher.Split(text, options.parse_special)) {
    if (part.id) {
      ids.push_back(*part.id);
      continue;
    }
    const auto begin = static_cast<size_t>(part.text.data() - text.data());
    RangedText ranged = {.text = std::string(part.text),
                         .ranges = RangesWithin(options.special_ranges, begin, begin + part.text.size())};
    FT_RETURN_IF_ERROR(parts_->EncodeText(std::move(ranged), /*is_first=*/begin == 0, options.parse_special, ids));
  }
  if (add_special_tokens) ids.insert(ids.end(), surroundings.after.begin(), surroundings.after.end());
  return ids;
}

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::string text;
  DecodeState state = parts_->decoder.Start(options.continues_text);
  for (size_t i = 0; i < ids.size(); ++i) {
    const Token* token = parts_->vocabulary.Find(ids[i]);
    if (token == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("token id ", i, ": expected a token of the vocabulary (ids up to ",
                                                     parts_->vocabulary.num_ids() - 1, "), got ", ids[i]));
    }
    if (!token->special || !options.skip_special) parts_->decoder.Append(*token, state, text);
  }
  parts_->decoder.Flush(state, text);
  return text;
}

const Vocabulary& Tokenizer::vocabulary() const { return parts_->vocabulary; }

absl::Status Tokenizer::CheckFits(size_t model_vocab_size) const {
  const auto refuse = [&](int32_t id) {
    return absl::InvalidArgumentError(absl::StrCat(parts_->path, ": token \"", parts_->vocabulary.Find(id)->spelling,
                                                   "\": expected an id below the model's vocab_size of ",
                                                   model_vocab_size, ", got ", id));
  };
  for (size_t id = model_vocab_size; id < parts_->num_model_ids; ++id) {
    if (parts_->vocabulary.Find(static_cast<int32_t>(id)) != nullptr) return refuse(static_cast<int32_t>(id));
  }
  for (const std::vector<int32_t>* side : {&parts_->surroundings.before, &parts_->surroundings.after}) {
    for (const int32_t id : *side) {
      if (static_cast<size_t>(id) >= model_vocab_size) return refuse(id);
    }
  }
  return absl::OkStatus();
}

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, const DecodeOptions& options)
    : tokenizer_(&tokenizer),
      skip_special_(options.skip_special),
      state_(tokenizer.parts_->decoder.Start(options.continues_text)) {}

std::string IncrementalDecoder::Append(int32_t id) {
  std::string text;
  const Token* token = tokenizer_->vocabulary().Find(id);
  if (token == nullptr || (token->special && skip_special_)) return text;
  tokenizer_->parts_->decoder.Append(*token, state_, text);
  return text;
}

std::string IncrementalDecoder::Flush() {
  std::string text;
  tokenizer_->parts_->decoder.Flush(state_, text);
  return text;
}

}  // namespace foretoken::tokenizer
