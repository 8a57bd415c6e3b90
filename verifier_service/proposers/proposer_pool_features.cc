// SPDX-License-Identifier: Apache-2.0
// The half of ProposerPool::Keeper that prepares what drafters read of the target: it reads their projections, and
// tells the engine which features to make.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/rpc/feature_conversion.h"
#include "common/rpc/projection_file.h"
#include "verifier_service/proposers/proposer_pool_keeper.h"

namespace foretoken::verifier {
namespace {

// The engine goes on making features for this long after the last proposer that needs them has gone. After as long it
// is asked again for features that it had no room for.
constexpr absl::Duration kLinger = absl::Minutes(1);
// A replica is asked again after this while another one's projection is read that is equal to its own.
constexpr absl::Duration kReadPause = absl::Milliseconds(200);
// For a small projection. The others wait for a reader, so a slow replica must not keep it for long.
constexpr absl::Duration kLeastReadTime = absl::Seconds(30);

std::string NameOf(const rpc::AnnouncedFeatures& announced) {
  std::string name = absl::StrJoin(announced.features.layers, ",");
  if (!announced.features.projection.has_value()) return name;
  const speculation::FeatureProjection& projection = *announced.features.projection;
  absl::StrAppend(&name, "/", announced.digest, "/", projection.num_outputs, "/", static_cast<int>(projection.norm),
                  "/", projection.eps);
  return name;
}

}  // namespace

void ProposerPool::Keeper::PrepareStream(Link& link, const v1::DescribeProposerResponse& description, absl::Time now) {
  if (description.needed_features_size() == 0) return StartStream(link, description, nullptr, now);
  const auto refuse = [&](absl::string_view why) {
    link.num_failures = std::max(link.num_failures, kSeldom);
    Fail(link, absl::StrCat("not used: ", why), now);
  };
  absl::StatusOr<rpc::AnnouncedFeatures> announced = rpc::ReadFeatures(description, *options.target);
  if (!announced.ok()) return refuse(announced.status().message());
  const std::string name = NameOf(*announced);
  // A replica that names other features each time must not hold the room of all kinds.
  if (link.features_name != name) DropSourceOf(link);
  if (!HasRoomFor(name, now)) return UseFeatures(link, description, {.name = name}, now);
  if (announced->num_projection_bytes > options.max_projection_bytes) {
    return refuse(absl::StrCat("its projection: expected at most ", options.max_projection_bytes, " bytes, got ",
                               announced->num_projection_bytes));
  }
  if (!announced->features.projection.has_value() || sources_.contains(name)) {
    return UseFeatures(link, description, {name, std::move(announced->features)}, now);
  }
  if (IsRead(name)) {  // for another replica: each reader holds a whole projection
    link.next_attempt = now + kReadPause;
    return;
  }
  ++num_calls_;
  link.read_features = name;
  ProjectionReader::Wanted wanted = {.digest = announced->digest, .num_bytes = announced->num_projection_bytes};
  if (const std::string& directory = options.projection_directory; !directory.empty()) {
    wanted.file = rpc::ProjectionPath(directory, announced->digest);
  }
  const double part = static_cast<double>(wanted.num_bytes) / static_cast<double>(options.max_projection_bytes);
  const absl::Duration whole =
      std::max(options.projection_timeout * part, std::min(options.projection_timeout, kLeastReadTime));
  auto done = [this, link_id = link.id, description, name, announced = *std::move(announced)](
                  absl::StatusOr<std::string> bytes, std::shared_ptr<ProjectionReader> reader) mutable {
    absl::Status status = bytes.ok() ? rpc::FillProjection(*bytes, announced) : bytes.status();
    OnProjection(link_id, description, std::move(reader), status, {name, std::move(announced.features)});
  };
  link.reading = ProjectionReader::Start(link.channel, std::move(wanted),
                                         {.piece = options.describe_timeout, .whole = whole}, std::move(done));
}

void ProposerPool::Keeper::OnProjection(uint64_t link_id, const v1::DescribeProposerResponse& description,
                                        std::shared_ptr<ProjectionReader> reader, const absl::Status& status,
                                        NamedFeatures features) {
  const std::lock_guard lock(mutex);
  --num_calls_;
  wake_.notify_all();
  const auto it = links.find(link_id);
  if (it != links.end()) ended_.push_back(std::exchange(it->second->reading, nullptr));
  const std::string file_fault = reader->file_fault();
  ended_.push_back(std::move(reader));
  if (is_stopping_ || it == links.end()) return;
  Link& link = *it->second;
  const absl::Time now = options.now();
  if (!file_fault.empty()) Complain(link, file_fault, now);
  if (!status.ok()) {
    if (!file_fault.empty()) link.num_failures = std::max(link.num_failures, kSeldom);  // each attempt reads the file
    Fail(link, absl::StrCat("ReadProjection: ", status.message()), now);
    // The replicas that wait for this reader get their turn first.
    link.next_attempt = std::max(link.next_attempt, now + 2 * kReadPause);
    return;
  }
  UseFeatures(link, description, std::move(features), now);
}

bool ProposerPool::Keeper::HasRoomFor(const std::string& name, absl::Time now) {
  DropUnusedSources(now);
  if (sources_.contains(name)) return true;
  const auto num_used = std::ranges::count_if(sources_, [](const auto& entry) { return entry.second.refusal.empty(); });
  // What is being read will be used, too, and takes its memory already.
  const auto num_read = std::ranges::count_if(links, [&](const auto& entry) {
    const Link& link = *entry.second;
    return link.reading != nullptr && link.read_features != name && !sources_.contains(link.read_features);
  });
  return num_used + num_read < options.max_feature_sources;
}

bool ProposerPool::Keeper::IsRead(const std::string& name) const {
  return std::ranges::any_of(links, [&](const auto& entry) {
    return entry.second->reading != nullptr && entry.second->read_features == name;
  });
}

void ProposerPool::Keeper::UseFeatures(Link& link, const v1::DescribeProposerResponse& description,
                                       NamedFeatures features, absl::Time now) {
  const auto refuse = [&](absl::string_view why) {
    link.num_failures = std::max(link.num_failures, kSeldom);
    Fail(link, absl::StrCat("not used: ", why), now);
  };
  if (!HasRoomFor(features.name, now)) {
    return refuse(
        absl::StrCat("it needs other features than the ", options.max_feature_sources, " kinds that are in use"));
  }
  Source& source = sources_[features.name];
  if (!source.refusal.empty()) return refuse(source.refusal);
  if (source.source == nullptr) {
    source.source = std::make_shared<const speculation::TargetFeatures>(std::move(features.features));
  }
  source.last_used = now;
  source.readers |= uint32_t{1} << link.proposer_idx;
  link.features_name = features.name;
  StartStream(link, description, source.source, now);
}

void ProposerPool::Keeper::DropUnusedSources(absl::Time now) {
  for (const auto& [id, link] : links) {
    if (link->stream == nullptr || link->features == nullptr) continue;
    for (auto& [name, source] : sources_) {
      if (source.source == link->features) source.last_used = now;
    }
  }
  absl::erase_if(sources_, [now](const auto& entry) { return now - entry.second.last_used > kLinger; });
}

void ProposerPool::Keeper::DropSourceOf(Link& link) {
  const auto last = sources_.find(std::exchange(link.features_name, ""));
  if (last == sources_.end() || !last->second.refusal.empty()) return;
  const bool is_needed =
      std::ranges::any_of(links, [&](const auto& entry) { return entry.second->features == last->second.source; });
  if (!is_needed) sources_.erase(last);
}

std::vector<FeatureSource> ProposerPool::Keeper::FeatureSources(absl::Time now) {
  DropUnusedSources(now);
  std::vector<FeatureSource> used;
  for (const auto& [name, source] : sources_) {
    if (source.refusal.empty()) used.push_back(source.source);
  }
  return used;
}

uint32_t ProposerPool::Keeper::ReadersOf(const FeatureSource& wanted) const {
  const auto entry = std::ranges::find(sources_, wanted, [](const auto& each) { return each.second.source; });
  return entry == sources_.end() ? 0 : entry->second.readers;
}

void ProposerPool::Keeper::RefuseFeatures(const FeatureSource& refused, const std::string& why, absl::Time now) {
  for (auto& [name, source] : sources_) {
    if (source.source != refused) continue;
    source.refusal = why;
    source.source = nullptr;  // up to a GiB, which nobody uses
  }
  for (auto& [id, link] : links) {
    if (link->stream == nullptr || link->features != refused) continue;
    link->num_failures = std::max(link->num_failures, kSeldom);
    Drop(*link, absl::StrCat("not used: ", why), now);
  }
}

}  // namespace foretoken::verifier
