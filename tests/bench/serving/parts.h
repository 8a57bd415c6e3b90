// SPDX-License-Identifier: Apache-2.0
// The parts of serving_bench. Each adds its findings, and fails where a request failed or a token differs between the
// ways of one request: no number is worth anything then.
#pragma once

#include "absl/status/status.h"
#include "tests/bench/findings.h"
#include "tests/bench/serving/setup.h"

namespace foretoken::bench {

// One client, the demo's prompts, suffix and draft: is what tokens per step and the cost of a step promise reached?
absl::Status MeasureTheory(Setup& setup, Findings* findings);
// Many clients in a closed loop: AUTO against no speculation, and against fixed tree sizes.
absl::Status MeasureLoad(Setup& setup, Findings* findings);
// Prompts of several kinds: merged proposers against the best single one, in accepted tokens.
absl::Status MeasureMerging(Setup& setup, Findings* findings);
// Proposers as processes against the same ones inside the verifier.
absl::Status MeasureSplit(Setup& setup, Findings* findings);
// One client, after a spike of 64: are its trees what they were?
absl::Status MeasureRecovery(Setup& setup, Findings* findings);
// A file repeated with small changes, the suffix proposer alone.
absl::Status MeasureEditing(Setup& setup, Findings* findings);
// The demo's own target, whose step takes less time than a proposal: does speculation still do no harm?
absl::Status MeasureUncostly(Setup& setup, Findings* findings);
// Fresh servers, on the demo's target and on the costly one, with and without gaps between requests: does every server
// come to a good set of proposers, for every set that requests allow?
absl::Status MeasureSettling(Setup& setup, Findings* findings);

}  // namespace foretoken::bench
