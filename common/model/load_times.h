// SPDX-License-Identifier: Apache-2.0
// Where the time of loading a model went, for a line of the log.
#pragma once

#include <string>

#include "common/model/weight_reader.h"

namespace foretoken::model {

// Seconds.
struct LoadTimes {
  double tokenizer = 0;
  double weights = 0;
  ReadTimes reading;       // of the weights, by the threads' own clocks
  double transformer = 0;  // K/V, tables, and memory for passes
};

// "tokenizer 0.21 s; weights 1.04 s, 2.47 GB at 2.38 GB/s (reading 25 %, packing 51 %, digest 15 %, giving pages back
// 9 %); K/V and tables 0.30 s"
std::string Describe(const LoadTimes& times);

}  // namespace foretoken::model
