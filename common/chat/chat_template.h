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
// nothing. Where Python refuses to add None to a text, None counts as an empty one. The escape filter does nothing,
// capitalize and title change ASCII letters alone, and split without a separator cuts at single spaces.
// select and reject need a test and its argument, and map an attribute.
// The filters: abs, capitalize, count, default, dictsort, escape, first, float, indent, int, items, join, last, length,
// list, lower, map, max, min, reject, rejectattr, replace, reverse, safe, select, selectattr, sort, string, title,
// tojson, trim, upper. Others fail, such as batch, groupby, round, sum, truncate, unique, urlencode and wordwrap.
// The methods of a text: capitalize, endswith, find, format (of "{}"), join, lower, lstrip, replace, rsplit, rstrip,
// split, startswith, strip, title, upper. Others fail, such as partition, removeprefix and splitlines.
// These fail, too: the statements with, block and raw; recursive loops, and loops over the characters of a text;
// loop.cycle and loop.changed; chained comparisons; < between texts; // and **; % on texts; ~ between numbers; the
// filters first, last and join of a text; the sort_keys of tojson and the count of replace.
// Threads: any may call Render.
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
