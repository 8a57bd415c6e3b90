// SPDX-License-Identifier: Apache-2.0
// Reads a profile between and beyond its levels. `num_sequences` and `num_rows` are at least 1.
#pragma once

#include <span>
#include <vector>

#include "client/simulate/profile.h"

namespace foretoken::client {

// The mean time of a step: on the line between the nearest levels. Beyond the last level, on the line through the last
// two, but never falling.
double StepMs(std::span<const ProfileLevel> levels, int32_t num_sequences);

// [k]: the share of a sequence's steps that accept k guesses, between the nearest levels. Beyond the last level, the
// last level's.
std::vector<double> AcceptedLengths(std::span<const ProfileLevel> levels, int32_t num_sequences);

// The mean time of a step without guesses: on the line between the nearest numbers of rows. Beyond the last one, on the
// line through it and the last one with at most half as many rows; without such, as long as the last one.
double StepMsOfRows(std::span<const ProfileRows> rows, double num_rows);

}  // namespace foretoken::client
