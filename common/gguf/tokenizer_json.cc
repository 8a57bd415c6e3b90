// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/tokenizer_json.h"

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/gguf/score_merges.h"
#include "common/gguf/text_split.h"
#include "common/gguf/token_list.h"

namespace foretoken::gguf {
namespace {

using nlohmann::json;

constexpr const char* kSpace = "\u2581";  // SentencePiece's sign for a space
constexpr const char* kTemplate = "tokenizer.chat_template";

// What both kinds of tokenizers are made of.
struct Source {
  const Metadata& metadata;
  std::vector<ListedToken> tokens;
  SpecialIds ids;
};

bool IsAdded(const ListedToken& token) {
  return token.kind == TokenKind::kControl || token.kind == TokenKind::kUserDefined ||
         token.kind == TokenKind::kUnknown;
}

json AddedTokens(const std::vector<ListedToken>& tokens) {
  json added = json::array();
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!IsAdded(tokens[id])) continue;
    added.push_back({{"id", id},
                     {"content", tokens[id].spelling},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", tokens[id].kind != TokenKind::kUserDefined}});
  }
  return added;
}

// The tokens that a model makes of text by itself, and the unknown token.
json Vocabulary(const std::vector<ListedToken>& tokens) {
  json vocabulary = json::object();
  for (size_t id = 0; id < tokens.size(); ++id) {
    const TokenKind kind = tokens[id].kind;
    if (kind == TokenKind::kNormal || kind == TokenKind::kByte || kind == TokenKind::kUnknown) {
      vocabulary[tokens[id].spelling] = id;
    }
  }
  return vocabulary;
}

// Adds the added tokens that a merge makes or joins: such a token is also one of the model's own.
void AddMerged(const std::vector<ListedToken>& tokens, const std::vector<std::string>& merges, json& vocabulary) {
  absl::flat_hash_map<std::string, size_t> added;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (IsAdded(tokens[id])) added.emplace(tokens[id].spelling, id);
  }
  const auto add = [&](const std::string& spelling) {
    if (const auto found = added.find(spelling); found != added.end()) vocabulary[spelling] = found->second;
  };
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    if (space == std::string::npos) continue;  // the tokenizer refuses it
    const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
    for (const std::string& spelling : {left, right, left + right}) add(spelling);
  }
}

struct Surroundings {
  bool adds_bos = false;
  bool adds_eos = false;
};

absl::StatusOr<json> PostProcessor(const Source& source, const Surroundings& defaults) {
  json single = json::array(), special_tokens = json::object();
  const auto add = [&](int64_t id) {
    const std::string& spelling = source.tokens[id].spelling;
    single.push_back({{"SpecialToken", {{"id", spelling}, {"type_id", 0}}}});
    special_tokens[spelling] = {{"id", spelling}, {"ids", {id}}, {"tokens", {spelling}}};
  };
  FT_ASSIGN_OR_RETURN(const bool adds_bos,
                      source.metadata.OrDefault<bool>("tokenizer.ggml.add_bos_token", defaults.adds_bos));
  FT_ASSIGN_OR_RETURN(const bool adds_eos,
                      source.metadata.OrDefault<bool>("tokenizer.ggml.add_eos_token", defaults.adds_eos));
  for (const auto& [is_added, id, name] :
       {std::tuple(adds_bos, source.ids.bos, "bos"), {adds_eos, source.ids.eos, "eos"}}) {
    if (name == std::string("eos")) single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    if (!is_added) continue;
    if (!id) {
      return source.metadata.Error(absl::StrCat("tokenizer.ggml.", name, "_token_id"),
                                   "is missing, but the tokenizer adds it to every text");
    }
    add(*id);
  }
  json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return json{{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special_tokens}};
}

absl::StatusOr<json> ByteLevelJson(const Source& source) {
  FT_ASSIGN_OR_RETURN(TextSplit split, ReadTextSplit(source.metadata));
  FT_ASSIGN_OR_RETURN(std::vector<std::string> merges,
                      source.metadata.RequiredList<std::string>("tokenizer.ggml.merges"));
  FT_ASSIGN_OR_RETURN(json post_processor, PostProcessor(source, {.adds_bos = split.adds_bos}));
  json vocabulary = Vocabulary(source.tokens);
  AddMerged(source.tokens, merges, vocabulary);
  return json{
      {"version", "1.0"},
      {"added_tokens", AddedTokens(source.tokens)},
      {"normalizer", std::move(split.normalizer)},
      {"pre_tokenizer", std::move(split.pre_tokenizer)},
      {"post_processor", std::move(post_processor)},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", split.ignores_merges},
        {"vocab", std::move(vocabulary)},
        {"merges", std::move(merges)}}}};
}

json SentencePieceDecoder(bool strips_space) {
  json steps = {{{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}}};
  if (strips_space) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

absl::StatusOr<json> SentencePieceJson(const Source& source) {
  const Metadata& metadata = source.metadata;
  for (const char* key : {"tokenizer.ggml.remove_extra_whitespaces", "tokenizer.ggml.escape_whitespaces"}) {
    const bool expected = std::string(key).ends_with("escape_whitespaces");
    FT_ASSIGN_OR_RETURN(const bool given, metadata.OrDefault<bool>(key, expected));
    if (given != expected) return metadata.Error(key, "expected ", expected ? "true, got false" : "false, got true");
  }
  FT_ASSIGN_OR_RETURN(const bool adds_space, metadata.OrDefault<bool>("tokenizer.ggml.add_space_prefix", true));
  FT_ASSIGN_OR_RETURN(json merges, MergesFromScores(metadata, source.tokens));
  FT_ASSIGN_OR_RETURN(json post_processor, PostProcessor(source, {.adds_bos = true}));
  json normalizers = json::array();
  if (adds_space) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}});
  json model = {{"type", "BPE"},
                {"fuse_unk", true},
                {"byte_fallback", true},
                {"vocab", Vocabulary(source.tokens)},
                {"merges", std::move(merges)}};
  const bool has_unknown = source.ids.unknown && source.tokens[*source.ids.unknown].kind == TokenKind::kUnknown;
  if (has_unknown) model["unk_token"] = source.tokens[*source.ids.unknown].spelling;
  return json{{"version", "1.0"},
              {"added_tokens", AddedTokens(source.tokens)},
              {"normalizer", {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}}},
              {"pre_tokenizer", nullptr},
              {"post_processor", std::move(post_processor)},
              {"decoder", SentencePieceDecoder(adds_space)},
              {"model", std::move(model)}};
}

// The default template, and further ones by name: "tokenizer.chat_templates" lists the names.
absl::Status AddTemplates(const Metadata& metadata, json& config) {
  FT_ASSIGN_OR_RETURN(const auto standard, metadata.Optional<std::string>(kTemplate));
  FT_ASSIGN_OR_RETURN(const auto for_tools, metadata.Optional<std::string>(absl::StrCat(kTemplate, ".tool_use")));
  if (!for_tools) {
    if (standard) config["chat_template"] = *standard;
    return absl::OkStatus();
  }
  json templates = json::array();
  if (standard) templates.push_back({{"name", "default"}, {"template", *standard}});
  templates.push_back({{"name", "tool_use"}, {"template", *for_tools}});
  config["chat_template"] = std::move(templates);
  return absl::OkStatus();
}

absl::StatusOr<Source> ReadSource(const Metadata& metadata) {
  FT_ASSIGN_OR_RETURN(const SpecialIds ids, ReadSpecialIds(metadata));
  FT_ASSIGN_OR_RETURN(std::vector<ListedToken> tokens, ReadTokens(metadata));
  return Source{.metadata = metadata, .tokens = std::move(tokens), .ids = ids};
}

}  // namespace

absl::StatusOr<json> TokenizerJson(const Metadata& metadata) {
  FT_ASSIGN_OR_RETURN(const TokenizerModel model, ReadTokenizerModel(metadata));
  FT_ASSIGN_OR_RETURN(const Source source, ReadSource(metadata));
  return model == TokenizerModel::kByteLevel ? ByteLevelJson(source) : SentencePieceJson(source);
}

absl::StatusOr<json> TokenizerConfigJson(const Metadata& metadata) {
  FT_ASSIGN_OR_RETURN(const Source source, ReadSource(metadata));
  json config = json::object();
  for (const auto& [name, id] : {std::pair("bos_token", source.ids.bos),
                                 {"eos_token", source.ids.eos},
                                 {"unk_token", source.ids.unknown},
                                 {"sep_token", source.ids.separator},
                                 {"pad_token", source.ids.padding}}) {
    if (id) config[name] = source.tokens[*id].spelling;
  }
  FT_RETURN_IF_ERROR(AddTemplates(metadata, config));
  return config;
}

}  // namespace foretoken::gguf
