// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/proposers/proposer_pool_keeper.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/rpc/status.h"
#include "verifier_service/proposers/check_proposer.h"
#include "verifier_service/proposers/proposer_channel.h"

namespace foretoken::verifier {
namespace {

// The end of the pool waits so long for a lookup.
constexpr absl::Duration kLongestLastLookup = absl::Seconds(1);

uint64_t SeedOrDrawn(uint64_t seed) { return seed != 0 ? seed : std::random_device()(); }

}  // namespace

ProposerPool::Keeper::Keeper(std::vector<ProposerSpec> the_specs, ProposerPoolOptions the_options)
    : options(std::move(the_options)),
      specs(std::move(the_specs)),
      book(specs.size(), options.backoff, SeedOrDrawn(options.jitter_seed)),
      counters(specs.size()),
      description_bounds_(DescriptionBounds()),
      random_(SeedOrDrawn(options.jitter_seed)) {
  for (uint32_t i = 0; i < specs.size(); ++i) {
    names.push_back(specs[i].method);
    if (specs[i].is_embedded) AddLink(i, "embedded", specs[i].channel);
    for (const std::string& address : specs[i].static_addresses)
      AddLink(i, address, MakeProposerChannel(address, "", options));
    for (const std::string& dns_name : specs[i].dns_names) {
      lookups_->names.push_back({.proposer_idx = i, .method = specs[i].method, .dns_name = dns_name});
    }
  }
  keep_thread_ = std::thread([this] { Keep(); });
  lookups_->has_ended = lookups_->names.empty();
  if (lookups_->has_ended) return;
  lookups_->resolve = options.resolve;
  lookups_->period = options.resolve_period;
  lookups_->keeper = this;
  std::thread([lookups = lookups_] { Resolve(*lookups); }).detach();
}

ProposerPool::Keeper::~Keeper() {
  {
    const std::lock_guard lock(mutex);
    is_stopping_ = true;
    wake_.notify_all();
  }
  keep_thread_.join();
  {
    std::unique_lock lock(lookups_->mutex);
    lookups_->keeper = nullptr;
    lookups_->changed.notify_all();
    WaitAtMost(kLongestLastLookup, lookups_->changed, lock, [this] { return lookups_->has_ended; });
  }
  std::unique_lock lock(mutex);
  for (const auto& [id, link] : links) {
    if (link->describing != nullptr) link->describing->context.TryCancel();
    if (link->reading != nullptr) link->reading->Cancel();
    if (link->stream != nullptr) link->stream->Cancel();
  }
  wake_.wait(lock, [this] { return num_calls_ == 0; });
  Write(lines_);
}

ProposerPool::Keeper::Link& ProposerPool::Keeper::AddLink(uint32_t proposer_idx, std::string address,
                                                          std::shared_ptr<grpc::Channel> channel) {
  const uint64_t id = next_id_++;
  std::unique_ptr<Link>& link = links[id] = std::make_unique<Link>();
  link->id = id;
  link->proposer_idx = proposer_idx;
  link->address = std::move(address);
  link->channel = std::move(channel);
  return *link;
}

void ProposerPool::Keeper::Keep() {
  while (KeepOnce()) {
  }
}

bool ProposerPool::Keeper::KeepOnce() {
  std::vector<std::shared_ptr<void>> ended;  // freed after the lock is released
  std::vector<Line> lines;                   // written after the lock is released
  {
    std::unique_lock lock(mutex);
    if (is_stopping_) return false;
    const absl::Time now = options.now();
    if (now - std::exchange(kept_at_, now) > options.silence_timeout / 2) went_on_at_ = now;
    for (auto& [id, link] : links) KeepLink(*link, now);
    book.RetryRefused(now);
    WriteAll(now);
    if (lines_.empty()) WaitAtMost(NextWake(now) - now, wake_, lock);
    ended.swap(ended_);
    lines.swap(lines_);
  }
  Write(lines);
  return true;
}

void ProposerPool::Keeper::KeepLink(Link& link, absl::Time now) {
  if (link.stream != nullptr) {
    std::optional<absl::Time> silent_since = book.SilentSince(link.replica_id);
    if (link.writing_since.has_value()) silent_since = std::min(silent_since.value_or(now), *link.writing_since);
    // If the process stood still, the answers may have come and not been read yet.
    const bool may_judge = now - went_on_at_ >= options.silence_timeout / 4;
    if (may_judge && silent_since.has_value() && now - *silent_since > options.silence_timeout) {
      Drop(link, absl::StrCat("silent for ", absl::FormatDuration(options.silence_timeout)), now);
      Reconnect(link);
    }
  } else if (link.describing == nullptr && link.reading == nullptr && link.next_attempt <= now) {
    Describe(link);
  }
}

absl::Time ProposerPool::Keeper::NextWake(absl::Time now) const {
  absl::Time next = now + options.silence_timeout / 4;
  for (const auto& [id, link] : links) {
    const bool is_waiting = link->stream == nullptr && link->describing == nullptr && link->reading == nullptr;
    if (is_waiting) next = std::min(next, link->next_attempt);
  }
  return std::min(next, book.NextRetry().value_or(next));
}

void ProposerPool::Keeper::Resolve(Lookups& lookups) {
  std::unique_lock lock(lookups.mutex);
  while (lookups.keeper != nullptr) {
    for (Lookups::Name& name : lookups.names) {
      if (lookups.keeper == nullptr) break;
      lock.unlock();
      const absl::StatusOr<std::vector<std::string>> addresses = lookups.resolve(name.dns_name);
      lock.lock();
      if (lookups.keeper == nullptr) break;
      if (addresses.ok()) {
        name.trouble.clear();
        lookups.keeper->SetAddresses(name.proposer_idx, name.dns_name, *addresses);
      } else if (std::exchange(name.trouble, std::string(addresses.status().message())) !=
                 addresses.status().message()) {
        lookups.keeper->Warn(absl::StrCat("proposer ", name.method, ": ", name.trouble));
      }
    }
    WaitAtMost(lookups.period, lookups.changed, lock, [&] { return lookups.keeper == nullptr; });
  }
  lookups.has_ended = true;
  lookups.changed.notify_all();
}

void ProposerPool::Keeper::Warn(std::string text) {
  const std::lock_guard lock(mutex);
  lines_.push_back({.level = spdlog::level::warn, .text = std::move(text)});
  wake_.notify_all();
}

void ProposerPool::Keeper::SetAddresses(uint32_t proposer_idx, const std::string& dns_name,
                                        const std::vector<std::string>& addresses) {
  const std::lock_guard lock(mutex);
  if (is_stopping_) return;
  std::vector<std::string> known;
  std::vector<uint64_t> gone;
  for (const auto& [id, link] : links) {
    if (link->proposer_idx != proposer_idx || link->dns_name != dns_name) continue;
    const bool is_there = std::find(addresses.begin(), addresses.end(), link->address) != addresses.end();
    if (is_there) {
      known.push_back(link->address);
    } else {
      gone.push_back(id);
    }
  }
  for (const std::string& address : addresses) {
    if (std::find(known.begin(), known.end(), address) != known.end()) continue;
    if (known.size() == options.max_addresses) {
      if (!crowded_names_.insert(absl::StrCat(names[proposer_idx], "=", dns_name)).second) break;
      lines_.push_back(
          {.level = spdlog::level::warn,
           .text = absl::StrCat("proposer ", names[proposer_idx], ": ", dns_name, " has ", addresses.size(),
                                " addresses, of which ", options.max_addresses, " are used")});
      break;
    }
    known.push_back(address);
    AddLink(proposer_idx, address, MakeProposerChannel(address, dns_name, options)).dns_name = dns_name;
  }
  const absl::Time now = options.now();
  for (const uint64_t id : gone) {
    Link& link = *links.at(id);
    if (link.describing != nullptr) link.describing->context.TryCancel();
    if (link.reading != nullptr) link.reading->Cancel();
    if (link.stream != nullptr) Drop(link, "the name no longer resolves to its address", now);
    ended_.push_back(std::move(links.at(id)));
    links.erase(id);
  }
  wake_.notify_all();
}

void ProposerPool::Keeper::StartStream(Link& link, const v1::DescribeProposerResponse& description,
                                       FeatureSource features, absl::Time now) {
  link.features = features;
  const uint64_t link_id = link.id;
  const ReplicaId replica_id = next_id_++;
  const uint32_t proposer_idx = link.proposer_idx;
  link.replica_id = replica_id;
  link.writing_since.reset();
  ++num_calls_;
  ++counters[proposer_idx].num_connects;
  const auto on_answer = [=, this](const auto& response, size_t num_bytes) {
    return OnAnswer(link_id, replica_id, proposer_idx, response, num_bytes);
  };
  link.stream = ReplicaStream::Start(
      link.channel, options.vocabulary_fingerprint,
      {.on_answer = on_answer,
       .on_written = [=, this] { OnWritten(link_id, replica_id); },
       .on_closing = [=, this] { OnClosing(link_id, replica_id); },
       .on_end = [=, this](const grpc::Status& status, auto stream) { OnEnd(link_id, status, std::move(stream)); }});
  link.streaming_since = now;
  Log(link, spdlog::level::info, absl::StrCat("connected, ", base::Quoted(description.version())), now);
  link.last_complaint.clear();
  book.AddReplica(replica_id, proposer_idx,
                  {.max_sessions = description.max_sessions(),
                   .max_context_tokens = description.max_context_tokens(),
                   .reads_allowed_tokens = ReadsAllowedTokens(description),
                   .features = std::move(features)},
                  now);
  Write(link, now);
}

ProposerPool::Keeper::Link* ProposerPool::Keeper::FindStream(uint64_t link_id, ReplicaId replica_id) {
  const auto it = links.find(link_id);
  if (is_stopping_ || it == links.end()) return nullptr;
  Link& link = *it->second;
  return link.stream != nullptr && link.replica_id == replica_id ? &link : nullptr;
}

absl::Duration ProposerPool::Keeper::OnAnswer(uint64_t link_id, ReplicaId replica_id, uint32_t proposer_idx,
                                              const v1::ProposeResponse& response, size_t num_bytes) {
  const size_t num_sessions = static_cast<size_t>(response.trees_size()) + response.refused_session_ids_size() +
                              response.refusals_size() + response.unknown_session_ids_size();
  const bool is_too_much = num_sessions > static_cast<size_t>(options.max_message_sessions);
  CheckedAnswer answer;
  if (!is_too_much) {
    answer = CheckAnswer(
        response,
        {.num_tokens = options.num_tokens, .max_nodes = options.max_tree_nodes, .proposers = 1u << proposer_idx});
  }
  const std::lock_guard lock(mutex);
  Link* link = FindStream(link_id, replica_id);
  if (link == nullptr) return absl::ZeroDuration();
  const absl::Time now = options.now();
  counters[proposer_idx].num_received_bytes += num_bytes;
  if (is_too_much) {
    Drop(*link, absl::StrCat("a message about ", num_sessions, " sessions, more than ", options.max_message_sessions),
         now);
  } else {
    TakeAnswer(*link, std::move(answer), now);
  }
  return link->pace.Count({num_bytes, num_sessions}, options.pace, now);
}

void ProposerPool::Keeper::TakeAnswer(Link& link, CheckedAnswer answer, absl::Time now) {
  const AnswerVerdict verdict = book.TakeAnswer(link.replica_id, std::move(answer), now);
  if (verdict.ends_wait) answered.notify_all();
  ProposerCounters& counts = counters[link.proposer_idx];
  counts.num_trees += verdict.num_trees;
  counts.num_stale_trees += verdict.num_stale_trees;
  counts.num_bad_trees += verdict.num_bad_trees;
  counts.num_refused += verdict.num_refused;
  for (size_t i = 0; i < counts.num_refused_by_reason.size(); ++i) {
    counts.num_refused_by_reason[i] += verdict.num_refused_by_reason[i];
  }
  counts.num_unknown += verdict.num_unknown;
  for (const absl::Duration round_trip : verdict.round_trips) counts.round_trips.Add(round_trip);
  if (verdict.num_trees > 0 && now - link.streaming_since >= options.backoff.max) link.num_failures = 0;
  if (verdict.num_refused > 0) Complain(link, absl::StrCat("refuses a session: ", verdict.first_refusal), now);
  if (verdict.num_bad_trees > 0) Complain(link, verdict.first_fault, now);
  if (verdict.num_bad_in_a_row >= options.max_bad_trees_in_a_row) {
    Drop(link, absl::StrCat(verdict.num_bad_in_a_row, " bad trees in a row"), now);
  }
  if (verdict.num_refused + verdict.num_unknown > 0) {  // sessions may have moved to other replicas
    WriteAll(now);
    wake_.notify_all();  // there may be a new retry time
  }
}

void ProposerPool::Keeper::OnWritten(uint64_t link_id, ReplicaId replica_id) {
  const std::lock_guard lock(mutex);
  Link* link = FindStream(link_id, replica_id);
  if (link == nullptr) return;
  link->writing_since.reset();
  Write(*link, options.now());
}

void ProposerPool::Keeper::OnClosing(uint64_t link_id, ReplicaId replica_id) {
  const std::lock_guard lock(mutex);
  Link* const link = FindStream(link_id, replica_id);
  if (link == nullptr) return;
  const absl::Time now = options.now();
  // A peer that owes nothing may end a stream that has lasted, for example to restart.
  const bool has_lasted = now - link->streaming_since >= options.backoff.max;
  if (has_lasted && !book.SilentSince(replica_id).has_value()) link->num_failures = 0;
  // Drop ends waits for this replica's answers. OnEnd logs the reason later.
  Drop(*link, "the stream ended", now);
}

void ProposerPool::Keeper::OnEnd(uint64_t link_id, const grpc::Status& status, std::shared_ptr<ReplicaStream> stream) {
  const std::lock_guard lock(mutex);
  --num_calls_;
  wake_.notify_all();
  ended_.push_back(std::move(stream));
  const auto it = links.find(link_id);
  if (is_stopping_ || it == links.end() || status.ok() || status.error_code() == grpc::StatusCode::CANCELLED) return;
  Complain(*it->second, base::Quoted(status.error_message(), rpc::kMaxErrorBytes), options.now());
}

void ProposerPool::Keeper::Write(Link& link, absl::Time now) {
  if (link.stream == nullptr || link.writing_since.has_value()) return;
  std::optional<v1::ProposeRequest> request = book.NextRequest(link.replica_id, now);
  if (!request.has_value()) return;
  counters[link.proposer_idx].num_sent_bytes += request->ByteSizeLong();
  for (const v1::FeatureChunk& chunk : request->features()) {
    counters[link.proposer_idx].num_feature_bytes += chunk.values().size();
  }
  link.writing_since = now;
  link.stream->Write(*std::move(request));
}

void ProposerPool::Keeper::WriteAll(absl::Time now) {
  for (auto& [id, link] : links) Write(*link, now);
}

void ProposerPool::Keeper::Drop(Link& link, const std::string& why, absl::Time now) {
  link.stream->Cancel();
  link.stream.reset();
  link.features = nullptr;  // up to a GiB, which `sources_` keeps for a while
  ++counters[link.proposer_idx].num_breaks;
  book.RemoveReplica(link.replica_id, now);
  answered.notify_all();
  Fail(link, why, now);
  WriteAll(now);  // opens its sessions at other replicas
}

void ProposerPool::Keeper::Fail(Link& link, const std::string& why, absl::Time now) {
  TryAgain(link, options.backoff, ++link.num_failures, why, now);
}

void ProposerPool::Keeper::FailToReach(Link& link, const std::string& why, absl::Time now) {
  TryAgain(link, options.reach, ++link.num_unreached, why, now);
}

void ProposerPool::Keeper::TryAgain(Link& link, const Backoff& backoff, int num_failures, const std::string& why,
                                    absl::Time now) {
  const double unit_random = std::uniform_real_distribution<double>(0, 1)(random_);
  link.next_attempt = now + BackoffDelay(backoff, num_failures, unit_random);
  Complain(link, why, now);
  wake_.notify_all();
}

void ProposerPool::Keeper::Reconnect(Link& link) {
  if (specs[link.proposer_idx].is_embedded) return;
  ended_.push_back(std::exchange(link.channel, MakeProposerChannel(link.address, link.dns_name.value_or(""), options)));
}

void ProposerPool::Keeper::Complain(Link& link, const std::string& why, absl::Time now) {
  if (why == link.last_complaint) return link.lines.LeaveOut();
  Log(link, spdlog::level::warn, why, now);
  link.last_complaint = why;
}

void ProposerPool::Keeper::Log(Link& link, spdlog::level::level_enum level, absl::string_view what, absl::Time now) {
  std::optional<std::string> line =
      link.lines.Pass(absl::StrCat("proposer ", names[link.proposer_idx], " at ", link.address, ": ", what), now);
  if (!line.has_value()) return;
  lines_.push_back({.level = level, .text = *std::move(line)});
  wake_.notify_all();
}

void ProposerPool::Keeper::Write(const std::vector<Line>& lines) {
  for (const Line& line : lines) spdlog::log(line.level, "{}", line.text);
}

}  // namespace foretoken::verifier
