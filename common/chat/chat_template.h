// SPDX-License-Identifier: Apache-2.0
// Turns a conversation into the text that a model was trained on, with the Jinja template of the model's checkpoint, as
// Hugging Face's apply_chat_template does.
//
//   FT_ASSIGN_OR_RETURN(const TemplateFiles files, ReadTemplateFiles("/models/llama"));
//   FT_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Parse(files, absl::Now));
//   FT_ASSIGN_OR_RETURN(RenderedChat rendered, chat.Render({.messages = {{{"role", "user"}, {"content", "Hi"}}}}));
//   FT_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
//                       tokenizer.Encode(rendered.text, {.add_special_tokens = false,
//                                                        .special_ranges = rendered.template_ranges}));
//
// Special tokens: a user must not be able to write tokens that only the server may write. So the render keeps apart
// what the template itself wrote: its literals, the special tokens of the checkpoint, and a role that is one plain
// word, because some templates make a token of it ("<|user|>"). All other bytes count as the user's, also where the
// template changed them, for example by a split or as JSON.
//
// Bounds: RenderBudget. The values may be nested as deep as base::kMaxJsonDepth.
// Errors: Parse returns INVALID_ARGUMENT for a template that the engine cannot parse, as some that Jinja can. Render
// returns INVALID_ARGUMENT if the template refuses the conversation (raise_exception), fails, or works too much.
// Differences from Hugging Face: a list or an object that a template prints without tojson prints as its texts or as
// nothing. Where Python refuses to add None to a text, None counts as an empty one. The escape filter does nothing, and
// capitalize and title change ASCII letters alone. These fail: the statements with and block; chained comparisons; the
// % operator on texts; the filters batch, groupby, round and unique; partition; sort_keys of tojson; loop.cycle and
// loop.changed. Threads: any may call Render.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/chat/render_budget.h"
#include "common/chat/template_files.h"
#include "common/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace foretoken::chat {

using OrderedJson = nlohmann::ordered_json;  // templates print objects in their order

struct Conversation {
  OrderedJson messages = OrderedJson::array();    // objects
  OrderedJson tools;                              // a list, or null
  OrderedJson variables = OrderedJson::object();  // more variables for the template
  bool add_generation_prompt = true;              // end with the beginning of an answer
};

struct RenderedChat {
  std::string text;
  std::vector<tokenizer::TextRange> template_ranges;  // the parts that the template wrote, in order, apart
};

// The names that Conversation::variables cannot set.
bool IsReservedVariable(const std::string& name);

class ChatTemplate {
 public:
  using Clock = std::function<absl::Time()>;

  // The files have a template. Templates can ask the clock for the date, in local time.
  static absl::StatusOr<ChatTemplate> Parse(const TemplateFiles& files, Clock clock);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `max_bytes`: the bound of the work, as render_budget.h counts it.
  absl::StatusOr<RenderedChat> Render(const Conversation& conversation, size_t max_bytes = kMaxRenderBytes) const;

 private:
  struct Parts;
  explicit ChatTemplate(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

}  // namespace foretoken::chat
