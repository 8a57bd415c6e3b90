// SPDX-License-Identifier: Apache-2.0
#include "client/explain/step_tree_text.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/explain/step_outcome.h"
#include "client/quoted.h"
#include "client/terminal.h"

namespace foretoken::client {
namespace {

using foretoken::v1::StepReport;
using foretoken::v1::StepTree;

constexpr size_t kTreeColumns = 56;   // indentation, mark and token
constexpr size_t kTokenColumns = 32;  // at most, quotes included
constexpr size_t kIndentColumns = 36;
constexpr absl::string_view kMargin = "  ";

absl::string_view Mark(NodeOutcome outcome) {
  switch (outcome) {
    case NodeOutcome::kAccepted:
      return "✓";
    case NodeOutcome::kRejected:
      return "✗";
    case NodeOutcome::kNotReached:
      return "○";
    case NodeOutcome::kMissed:
      return "!";
    case NodeOutcome::kNoRow:
      return "·";
  }
  return "";
}

Ink InkOf(NodeOutcome outcome) {
  switch (outcome) {
    case NodeOutcome::kAccepted:
      return Ink::kGreen;
    case NodeOutcome::kRejected:
    case NodeOutcome::kMissed:
      return Ink::kRed;
    case NodeOutcome::kNotReached:
      return Ink::kPlain;
    case NodeOutcome::kNoRow:
      return Ink::kDim;
  }
  return Ink::kPlain;
}

class TreeDrawing {
 public:
  TreeDrawing(const StepReport& step, const TokenTexts& texts, const StepTextOptions& options)
      : step_(step),
        tree_(step.tree()),
        texts_(texts),
        options_(options),
        outcomes_(NodeOutcomes(step)),
        stated_(StatedPathChances(step.tree())),
        children_(tree_.token_ids_size() + 1) {
    ChooseShown();
  }

  std::string Draw() && {
    DrawBelow(/*parent=*/-1, std::string(kMargin));
    if (!hidden_.empty()) {
      const std::string line = absl::StrFormat("%s… %d more had no row, the likeliest %.3f", kMargin, hidden_.size(),
                                               tree_.path_chances(hidden_.front()));
      absl::StrAppend(&text_, Paint(line, options_.color ? Ink::kDim : Ink::kPlain), "\n");
    }
    return std::move(text_);
  }

 private:
  // Shows the nodes with a row, the missed node, the likeliest nodes without a row, and the parents of all of these.
  void ChooseShown() {
    std::vector<int> order(tree_.token_ids_size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [this](int a, int b) { return tree_.path_chances(a) > tree_.path_chances(b); });
    std::vector<bool> is_shown(order.size(), false);
    int num_unplanned = 0;
    for (const int node : order) {
      const bool has_no_row = outcomes_[node] == NodeOutcome::kNoRow;
      if (has_no_row && ++num_unplanned > options_.num_unplanned_nodes) continue;
      for (int above = node; above >= 0 && !is_shown[above]; above = tree_.parents(above)) is_shown[above] = true;
    }
    for (const int node : order) {
      if (is_shown[node]) children_[tree_.parents(node) + 1].push_back(node);
      if (!is_shown[node]) hidden_.push_back(node);
    }
  }

  void DrawBelow(int parent, std::string indent) {
    while (children_[parent + 1].size() == 1) {
      parent = children_[parent + 1].front();
      DrawNode(parent, indent);
    }
    const std::vector<int>& children = children_[parent + 1];
    for (const int child : children) {
      const bool is_last = child == children.back();
      DrawNode(child, absl::StrCat(indent, is_last ? "└─ " : "├─ "));
      DrawBelow(child, ShownIndent(absl::StrCat(indent, is_last ? "   " : "│  ")));
    }
  }

  void DrawNode(int node, absl::string_view indent) {
    const std::string mark_and_token =
        absl::StrCat(Mark(outcomes_[node]), " ", Quoted(texts_.Of(tree_.token_ids(node)), kTokenColumns));
    std::string names;
    for (int i = 0; i < step_.proposers_size() && i < 32; ++i) {
      if ((tree_.proposers(node) >> i & 1) != 0)
        absl::StrAppend(&names, " ", EscapeControls(step_.proposers(i).proposer()));
    }
    const std::string shown_indent = ShownIndent(indent);
    const size_t num_columns = NumColumns(shown_indent) + NumColumns(mark_and_token);
    const Ink ink = options_.color ? InkOf(outcomes_[node]) : Ink::kPlain;
    absl::StrAppend(&text_, shown_indent, Paint(mark_and_token, ink),
                    std::string(kTreeColumns - std::min(kTreeColumns, num_columns), ' '),
                    absl::StrFormat("  %.3f → %.3f %s\n", stated_[node], tree_.path_chances(node), names));
  }

  // The indentation of a node. Deep in the tree it shows the last branches only.
  static std::string ShownIndent(absl::string_view indent) {
    while (NumColumns(indent) > kIndentColumns) {
      indent.remove_prefix(1);
      while (NumColumns(indent.substr(0, 1)) == 0) indent.remove_prefix(1);
    }
    return std::string(indent);
  }

  const StepReport& step_;
  const StepTree& tree_;
  const TokenTexts& texts_;
  const StepTextOptions options_;
  const std::vector<NodeOutcome> outcomes_;
  const std::vector<float> stated_;
  std::vector<std::vector<int>> children_;  // shown children, of the root and then of each node; likeliest first
  std::vector<int> hidden_;                 // likeliest first
  std::string text_;
};

}  // namespace

std::string TreeLegend() {
  return "✓ accepted  ✗ rejected  ○ not reached  ! right, but had no row  · had no row\n"
         "numbers: the path chance of a node, as its proposers state it → as calibrated\n";
}

std::string TreeText(const StepReport& step, const TokenTexts& texts, const StepTextOptions& options) {
  return TreeDrawing(step, texts, options).Draw();
}

}  // namespace foretoken::client
