// SPDX-License-Identifier: Apache-2.0
// The parts of serving_bench. Each adds its findings. A part fails if a request fails or a token differs between two
// settings of one request, because then no number means anything.
#pragma once

#include "absl/status/status.h"
#include "tests/bench/findings.h"
#include "tests/bench/serving/setup.h"

namespace foretoken::bench {

// The parts with many clients are about decoding, so their prompts are cut to this many tokens.
inline constexpr int kPromptTokens = 16;

// One client, the demo's prompts, suffix and draft: compares the speedup with the tokens per step and the cost of a
// step.
absl::Status MeasureTheory(Setup& setup, Findings* findings);
// Many clients in a closed loop: compares AUTO with no speculation and with fixed tree sizes.
absl::Status MeasureLoad(Setup& setup, Findings* findings);
// Prompts of several kinds: compares merged proposers with the best single proposer, in accepted tokens.
absl::Status MeasureMerging(Setup& setup, Findings* findings);
// Compares proposers as processes with the same proposers inside the verifier.
absl::Status MeasureSplit(Setup& setup, Findings* findings);
// One client after a spike of 64 clients: whether its trees are as large as before.
absl::Status MeasureRecovery(Setup& setup, Findings* findings);
// A file that is repeated with small changes, with the suffix proposer only.
absl::Status MeasureEditing(Setup& setup, Findings* findings);
// The demo's own target, whose step is shorter than a proposal: whether speculation costs nothing there.
absl::Status MeasureUncostly(Setup& setup, Findings* findings);
// Fresh servers with the demo's target and with the costly one, with and without gaps between requests: whether every
// server finds a good set of proposers, for every set that requests allow.
absl::Status MeasureSettling(Setup& setup, Findings* findings);
// Four times as many requests as the verifier can serve: the throughput against 1x, and the time of a refusal.
absl::Status MeasureOverload(Setup& setup, Findings* findings);
// One tenant sends ten times as many requests as the verifier can serve: what another tenant completes of its fair
// share.
absl::Status MeasureFairness(Setup& setup, Findings* findings);
// One client, a drafter that reads the target's hidden states: its speed alone and merged, as a process and inside the
// verifier, its bytes on the wire, and what capturing costs.
absl::Status MeasureDrafters(Setup& setup, Findings* findings);
// 16 clients: the throughput with traces of no request, of one in 20, and of every step, against none.
absl::Status MeasureTracing(Setup& setup, Findings* findings);

}  // namespace foretoken::bench
