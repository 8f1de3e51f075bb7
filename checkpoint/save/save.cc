#include "checkpoint/save/save.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/save/fence.h"
#include "checkpoint/shard_file/index_file.h"

namespace lockstep::checkpoint {
namespace {

double now_s() { return system_clock().monotonic_s(); }

void warn_unless(const Result<void>& result, const char* what) {
  if (!result.ok())
    log_warning("the checkpoint is committed, but ", what, ": ", result.error().message);
}

}  // namespace

Save::Save(SaveContext context, SaveRequest request, std::string attempt)
    : context_(std::move(context)),
      options_(context_.options),
      request_(std::move(request)),
      attempt_(std::move(attempt)),
      patience_{options_.vote_deadline, &context_.stopping} {
  LOCKSTEP_CHECK(!attempt_.empty() && request_.step >= 0, "attempt \"", attempt_, "\" at step ",
                 request_.step);
  report_.step = request_.step;
  report_.directory = options_.folder / attempt_;
}

void Save::begin_phase(SavePhase phase) {
  LOCKSTEP_CHECK(static_cast<int>(phase) == static_cast<int>(phase_) + 1, attempt_, " goes from ",
                 save_phase_name(phase_), " to ", save_phase_name(phase));
  phase_ = phase;
  context_.set_phase(phase);
}

// Whoever says that its part is on disk has synced all that it wrote for it.
void Save::check_durable() const {
  const auto& unsynced = context_.files.unsynced();
  LOCKSTEP_CHECK(unsynced.empty(), attempt_, ": ", unsynced.begin()->string(),
                 " is not synced, nor are ", unsynced.size() - 1, " more");
}

SaveReport Save::run() {
  context_.files.forget_unsynced();  // of a save that failed
  begin_phase(SavePhase::kStaging);
  Result<void> mine = stage();
  context_.on_read();
  context_.on_staged(mine.ok());
  begin_phase(SavePhase::kWriting);
  mine = writes() ? write(mine) : hand_over(mine);
  begin_phase(SavePhase::kVoting);
  const Result<void> outcome = vote_and_await(mine);
  report_.committed = outcome.ok();
  if (!outcome.ok()) {
    report_.error = outcome.error().message;
    report_.code = mine.ok() ? outcome.error().code : mine.error().code;
  }
  context_.set_phase(outcome.ok() ? SavePhase::kCommitted : SavePhase::kFailed);
  return std::move(report_);
}

Result<void> Save::stage() {
  const double start_s = now_s();
  LOCKSTEP_TRY(fingerprints_, context_.staging.stage(context_.on_read));
  report_.stage_s = now_s() - start_s;
  report_.raw_bytes = context_.staging.size_bytes();
  for (const auto& [piece, bytes] : context_.staging.staged())
    LOCKSTEP_CHECK(fingerprints_.contains(piece.tensor_key()), piece.tensor_key(),
                   " was staged and has no fingerprint");
  return {};
}

// The neighbours hear of every error.
Result<void> Save::write(const Result<void>& staged) {
  const auto met = context_.neighbours.meet(patience_);
  auto neighbours = met.ok()
                        ? open_inboxes(context_.ballot, attempt_, context_.neighbours, patience_)
                        : Result<std::vector<ChunkInbox>>(met.error());
  if (!neighbours.ok()) return staged.ok() ? Result<void>(neighbours.error()) : staged;
  const Result<void> written = staged.ok() ? write_with(neighbours.value()) : staged;
  if (!written.ok())
    for (ChunkInbox& inbox : neighbours.value()) inbox.abandon(written.error());
  return written;
}

Result<void> Save::write_with(std::span<ChunkInbox> neighbours) {
  const double start_s = now_s();
  LOCKSTEP_RETURN_IF_ERROR(context_.files.make_directories(report_.directory));
  LOCKSTEP_RETURN_IF_ERROR(context_.files.sync_directory(options_.folder));
  bool any = !context_.staging.staged().empty();
  for (ChunkInbox& inbox : neighbours) {
    if (any) break;
    LOCKSTEP_TRY(const auto chunk, inbox.front());
    any = chunk.has_value();
  }
  if (any) LOCKSTEP_RETURN_IF_ERROR(write_file(neighbours));
  report_.write_s = now_s() - start_s - report_.sync_s;
  return {};
}

Result<void> Save::check_encoded(const Fingerprints& sums) const {
  if (sums == fingerprints_) return {};
  return Error{Code::kBug, text(shard_file_name(context_.neighbours.group().writer),
                                ": the encoded chunks differ from the staged copy, so memory was "
                                "overwritten or is faulty")};
}

Result<void> Save::write_file(std::span<ChunkInbox> neighbours) {
  LOCKSTEP_CHECK(writes() && !file_, "rank ", options_.rank, " writes the file of rank ",
                 context_.neighbours.group().writer, ", or writes its own again");
  LOCKSTEP_TRY(ShardFileWriter writer, ShardFileWriter::open(context_.files, context_.pipeline,
                                                             {.directory = report_.directory,
                                                              .rank = options_.rank,
                                                              .world_size = options_.world_size,
                                                              .step = report_.step,
                                                              .generation = options_.generation,
                                                              .neighbours = neighbours}));
  Result<void> written;
  for (const auto& [piece, bytes] : context_.staging.staged()) {
    written = writer.append(piece, bytes);
    if (!written.ok()) break;
  }
  if (written.ok()) {
    auto digest = writer.seal();
    written = digest.ok() ? check_encoded(digest.value().sums) : digest.error();
    if (written.ok()) {
      report_.raw_bytes = digest.value().raw_bytes;
      report_.stored_bytes = digest.value().stored_bytes;
      report_.sync_s = digest.value().sync_s;
      file_ = std::move(digest.value().file);
      LOCKSTEP_CHECK(file_->name == shard_file_name(options_.rank) &&
                         file_->pieces.size() >= context_.staging.staged().size(),
                     file_->name, " has ", file_->pieces.size(), " pieces, and ",
                     context_.staging.staged().size(), " were staged");
      return {};
    }
  }
  writer.abandon();
  return written;
}

// The writer waits for a word of every neighbour, and hears of every error.
Result<void> Save::hand_over(const Result<void>& staged) {
  const double start_s = now_s();
  const int writer = context_.neighbours.group().writer;
  LOCKSTEP_CHECK(!writes() && !file_, "rank ", options_.rank, " hands over what it writes itself");
  const Result<void> met = staged.ok() ? context_.neighbours.meet(patience_) : staged;
  auto outbox = met.ok()
                    ? ChunkOutbox::create(writer, context_.neighbours.page_of(writer), patience_)
                    : Result<ChunkOutbox>(met.error());
  LOCKSTEP_RETURN_IF_ERROR(tell_address(context_.ballot, attempt_, options_.rank,
                                        outbox.ok() ? outbox.value().address() : ""));
  if (!outbox.ok()) return outbox.error();
  const Result<void> handed = hand_over_to(outbox.value());
  if (!handed.ok()) outbox.value().fail(handed.error());
  report_.write_s = now_s() - start_s;
  return handed;
}

Result<void> Save::hand_over_to(ChunkOutbox& outbox) {
  PieceEncoder encoder(context_.pipeline, {kChunkElements}, [&](const FileChunk& chunk) {
    report_.stored_bytes += static_cast<int64_t>(chunk.bytes.bytes.size());
    return outbox.put(chunk);
  });
  for (const auto& [piece, bytes] : context_.staging.staged())
    LOCKSTEP_RETURN_IF_ERROR(encoder.append(piece, bytes));
  LOCKSTEP_RETURN_IF_ERROR(encoder.flush());
  LOCKSTEP_RETURN_IF_ERROR(check_encoded(encoder.sums()));
  return outbox.finish();
}

// This rank's part of the manifest. It describes the tensors that its file has pieces of, and adds
// nothing to the fingerprints of those that are its neighbours' alone.
Manifest Save::part() const {
  Manifest m;
  m.step = report_.step;
  m.generation = options_.generation;
  m.world_size = options_.world_size;
  m.nonce = options_.nonce;
  m.created_utc = utc_text(system_clock().unix_ns());
  m.ephemeral = request_.ephemeral;
  m.validation_loss = request_.validation_loss;
  m.codec = word_of(context_.pipeline.codec());
  m.chunking.elements = kChunkElements;
  m.trainer_state = request_.trainer_state;
  std::vector<LivePiece> described = context_.staging.staged();
  Fingerprints sums = fingerprints_;
  if (file_) {
    m.files.push_back(*file_);
    for (const TensorPiece& piece : file_->pieces)
      if (sums.try_emplace(piece.tensor_key(), 0).second) described.push_back({piece, {}});
  }
  m.set_tensors(tensors_of(described, sums));
  return m;
}

std::string Save::vote_of(const Result<void>& mine) const {
  LOCKSTEP_CHECK(phase_ == SavePhase::kVoting, attempt_, " is voted on while it is ",
                 save_phase_name(phase_));
  if (mine.ok()) check_durable();
  Vote vote{options_.rank, mine.ok() ? "" : mine.error().message, {}};
  vote.disk_full = !mine.ok() && mine.error().code == Code::kNoSpace;
  if (mine.ok()) vote.part = part();
  return vote_text(vote);
}

// The votes of this rank's group, as one that names its part of the manifest. Votes that do not fit
// together stay as they are: rank 0 says what is wrong with them.
Polls::Texts Save::join_votes(Polls::Texts texts) {
  std::vector<Vote> votes;
  for (const std::string& each : texts) {
    auto vote = parse_vote(each);
    if (!vote.ok()) return texts;
    votes.push_back(std::move(vote).value());
  }
  auto merged = merge_votes(votes, Coverage::kPart);
  if (!merged.ok()) return texts;
  Vote joint{options_.rank, "", std::move(merged).value()};
  if (joint.part.files.empty()) return {vote_text(joint)};
  auto part = publish_part(context_.files, report_.directory, options_.rank, joint.part.files);
  if (part.ok()) {
    check_durable();
    joint.part.set_parts({std::move(part).value()});
  } else {
    joint.error = part.error().message;
    joint.disk_full = part.error().code == Code::kNoSpace;
  }
  return {vote_text(joint)};
}

Polls::Join Save::join_of_groups() {
  if (options_.world_size <= options_.most_ranks_in_one_manifest) return {};
  return [this](Polls::Texts texts) { return join_votes(std::move(texts)); };
}

Result<void> Save::cast(const Result<void>& mine) {
  if (context_.stopping) return context_.polls.vote_alone(attempt_, vote_of(mine));
  const auto done = context_.polls.vote(attempt_, vote_of(mine), join_of_groups());
  return done.ok() ? Result<void>() : Result<void>(done.error());
}

Result<void> Save::vote_and_await(const Result<void>& mine) {
  const double start_s = now_s();
  Result<void> outcome;
  std::optional<Manifest> manifest;
  if (options_.rank == 0) {
    auto decided = decide(mine);
    outcome = decided.ok() ? Result<void>() : Result<void>(decided.error());
    if (decided.ok()) manifest = std::move(decided).value();
    const auto announced = context_.polls.announce(attempt_, outcome_text(outcome));
    if (!announced.ok())
      log_warning("could not announce the outcome of the save of step ", report_.step,
                  " to the other ranks: ", announced.error().message);
  } else {
    outcome = cast(mine);
    if (outcome.ok() && !context_.stopping) {
      const auto word = context_.polls.await_outcome(attempt_);
      outcome = word.ok() ? parse_outcome(word.value()) : Result<void>(word.error());
    }
  }
  if (context_.stopping && options_.rank != 0 && !mine.ok()) outcome = mine;
  report_.vote_s = now_s() - start_s;
  if (manifest) after_commit(*manifest);
  return outcome;
}

// Rank 0: from votes to a durable manifest. Whatever fails here leaves nothing that a reader takes
// for a checkpoint.
Result<Manifest> Save::decide(const Result<void>& mine) {
  const auto attempt = [&]() -> Result<Manifest> {
    if (context_.stopping) return Error{Code::kAborted, "the engine was stopped"};
    LOCKSTEP_TRY(const auto texts, context_.polls.vote(attempt_, vote_of(mine), join_of_groups()));
    std::vector<Vote> votes;
    for (const std::string& each : texts) {
      LOCKSTEP_TRY(Vote vote, parse_vote(each));
      votes.push_back(std::move(vote));
    }
    LOCKSTEP_TRY(Manifest manifest, merge_votes(votes));
    if (const auto& last = context_.previous;
        last && is_stale(last->manifest, manifest, request_.updates - last->updates))
      return Error{Code::kBug, text("the state is unchanged since step ", last->manifest.step,
                                    ", although ", request_.updates - last->updates,
                                    " updates were made since: the staged copy is stale")};
    const Fence fence{options_.folder, options_.generation, options_.nonce};
    LOCKSTEP_RETURN_IF_ERROR(fence.check(context_.other_files));
    if (manifest.parts.empty()) {
      LOCKSTEP_TRY(const std::string index, index_contents(manifest));
      manifest.index_xxh3 = hex64(xxh3_64(index));
    }
    LOCKSTEP_RETURN_IF_ERROR(publish(manifest));
    return manifest;
  };
  LOCKSTEP_CHECK(options_.rank == 0, "rank ", options_.rank, " decides on ", attempt_);
  auto decided = attempt();
  if (decided.ok()) {
    context_.previous = Committed{decided.value(), request_.updates};
  } else {
    const auto removed = remove_checkpoint(context_.other_files, report_.directory);
    if (!removed.ok())
      log_warning(
          "cannot remove the partial checkpoint of a failed save; the next start tries again: ",
          removed.error().message);
  }
  return decided;
}

// What rank 0 has itself: other ranks' words agree with it, or merge_votes has said so.
Result<void> Save::publish(const Manifest& manifest) {
  LOCKSTEP_CHECK(phase_ == SavePhase::kVoting, attempt_, " is published while it is ",
                 save_phase_name(phase_));
  LOCKSTEP_CHECK(manifest.step == request_.step && manifest.generation == options_.generation &&
                     manifest.nonce == options_.nonce && manifest.world_size == options_.world_size,
                 attempt_, ": the manifest is of step ", manifest.step, " by generation ",
                 manifest.generation, "-", manifest.nonce, " of ", manifest.world_size, " ranks");
  const Result<void> covered = check_coverage(manifest);
  LOCKSTEP_CHECK(covered.ok(), attempt_, ": ", covered.error().message);
  check_durable();
  LOCKSTEP_RETURN_IF_ERROR(
      publish_file(context_.files, report_.directory / kManifestName, manifest_text(manifest)));
  check_durable();
  return {};
}

void Save::after_commit(const Manifest& manifest) {
  LOCKSTEP_CHECK(context_.previous && context_.previous->manifest.step == manifest.step, "step ",
                 manifest.step, " was not committed");
  StoppableFiles& fs = context_.other_files;
  warn_unless(publish_file(fs, options_.folder / kLatestName, attempt_ + "\n"),
              "LATEST was not written");
  if (!manifest.index_xxh3.empty())
    warn_unless(write_index(fs, report_.directory, manifest), "its index.h5 was not written");
  context_.catalog.add(report_.directory, manifest);
  RetentionPolicy policy = options_.retention;
  policy.audited_step = request_.audited_step;
  const auto pruned = prune(fs, context_.catalog, policy, options_.generation);
  if (!pruned.ok()) warn_unless(pruned.error(), "pruning old checkpoints failed");
}

}  // namespace lockstep::checkpoint
