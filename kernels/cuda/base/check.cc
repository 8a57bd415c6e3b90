// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/base/check.h"

#include <string>

#include "kernels/device_failure.h"

namespace foretoken::kernels::cuda {
namespace {

struct Place {
  int rank = 0;
  int gpu = 0;
};
// One per thread, like CUDA's current device, because an op knows only its stream.
thread_local Place place;

}  // namespace

void SetFailingRank(int rank, int gpu) { place = {.rank = rank, .gpu = gpu}; }

void EndOnFailedCall(const FailedCall& failed, cudaError_t error) {
  EndOnFailedCall(failed, std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) + ")");
}

void EndOnFailedCall(const FailedCall& failed, const std::string& words) {
  EndOnDeviceFailure(std::string(failed.file) + ":" + std::to_string(failed.line) + ": " + failed.call + ": " + words +
                     ", rank " + std::to_string(place.rank) + " on GPU " + std::to_string(place.gpu));
}

}  // namespace foretoken::kernels::cuda
