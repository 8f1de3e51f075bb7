#include "launcher/net/store_server.h"

#include <limits>

#include "base/number.h"
#include "base/text.h"

namespace lockstep::launcher::net {
namespace {

StoreAnswer refusal(const std::string& reason) { return {StoreStatus::kRefused, 0, reason}; }

bool parks(StoreOperation operation) {
  return operation == StoreOperation::kGet || operation == StoreOperation::kWait;
}

// The first of `keys` that is not in `values`; null: all are.
template <typename Values>
const std::string* first_missing(const Values& values, const std::vector<std::string>& keys) {
  for (const std::string& key : keys)
    if (!values.contains(key)) return &key;
  return nullptr;
}

}  // namespace

void StoreServer::open(const std::string& space) { spaces_.try_emplace(space); }

StoreReplies StoreServer::forget(const std::string& space, const std::string& reason) {
  StoreReplies told;
  const auto found = spaces_.find(space);
  if (found == spaces_.end()) return told;
  for (const auto& [key, clients] : found->second.waiting)
    for (const StoreClient client : clients) {
      told.push_back({client, encode(refusal(reason))});
      parked_.erase(client);
    }
  for (const auto& [key, value] : found->second.values) total_bytes_ -= key.size() + value.size();
  key_count_ -= found->second.values.size();
  spaces_.erase(found);
  return told;
}

StoreReplies StoreServer::on_request(StoreClient client, std::string_view bytes) {
  auto request = decode_store_request(bytes);
  if (!request) return {{client, encode(refusal(request.error().message))}};
  if (parked_.contains(client))
    return {{client, encode(refusal(
                         "the client sent a request while another one waits on its connection"))}};
  const auto space = spaces_.find(request->space);
  if (space == spaces_.end())
    return {{client,
             encode(refusal(text("generation ", request->space, " is over or has not begun")))}};
  if (const std::string wrong = problem(*request); !wrong.empty())
    return {{client, encode(refusal(wrong))}};
  if (parks(request->operation))
    if (const std::string* missing = first_missing(space->second.values, request->keys)) {
      if (parked_.size() >= limits_.max_parked)
        return {{client, encode(refusal("too many clients wait for a key"))}};
      space->second.waiting[*missing].insert(client);
      parked_[client] = {std::move(*request), *missing};
      return {};
    }
  StoreReplies replies;
  const StoreAnswer answered = answer(space->second, *request, replies);
  replies.insert(replies.begin(), {client, encode(answered)});
  return replies;
}

// What is too large, in words; "" when nothing is.
std::string StoreServer::problem(const StoreRequest& request) const {
  if (request.keys.size() > limits_.max_request_keys)
    return text("the request has ", request.keys.size(), " keys, and the limit is ",
                limits_.max_request_keys);
  for (const std::string& key : request.keys)
    if (key.size() > limits_.max_key_bytes)
      return text("the key has ", key.size(), " bytes, and the limit is ", limits_.max_key_bytes);
  for (const std::string& value : request.values)
    if (value.size() > limits_.max_value_bytes)
      return text("the value has ", value.size(), " bytes, and the limit is ",
                  limits_.max_value_bytes);
  return "";
}

// Requires: of a get or wait, all keys are there.
StoreAnswer StoreServer::answer(Space& space, const StoreRequest& request, StoreReplies& woken) {
  const std::string key = request.keys.empty() ? "" : request.keys.front();
  const auto found = space.values.find(key);
  const bool there = found != space.values.end();
  switch (request.operation) {
    case StoreOperation::kSet: return put(space, key, request.values[0], woken);
    case StoreOperation::kGet: return {StoreStatus::kOk, 0, found->second};
    case StoreOperation::kWait: return {};
    case StoreOperation::kAdd: return add(space, key, request.number, woken);
    case StoreOperation::kCompareSet: {
      const std::string now = there ? found->second : "";
      if (now != request.values[0]) return {StoreStatus::kOk, 0, there ? now : request.values[0]};
      StoreAnswer stored = put(space, key, request.values[1], woken);
      if (stored.status == StoreStatus::kOk) stored.text = request.values[1];
      return stored;
    }
    case StoreOperation::kCheck:
      return {StoreStatus::kOk, first_missing(space.values, request.keys) == nullptr, ""};
    case StoreOperation::kDelete:
      if (there) {
        total_bytes_ -= key.size() + found->second.size();
        --key_count_;
        space.values.erase(found);
      }
      return {StoreStatus::kOk, there, ""};
    case StoreOperation::kCount:
      return {StoreStatus::kOk, static_cast<int64_t>(space.values.size()), ""};
  }
  return refusal("this version does not know the operation");
}

StoreAnswer StoreServer::add(Space& space, const std::string& key, int64_t more,
                             StoreReplies& woken) {
  int64_t number = 0;
  if (const auto found = space.values.find(key); found != space.values.end()) {
    const auto held = parse_number(found->second);
    if (!held) return refusal(text("cannot add to \"", key, "\": it does not hold a number"));
    number = *held;
  }
  if (__builtin_add_overflow(number, more, &number))
    return refusal(text("cannot add to \"", key, "\": the sum is too large"));
  StoreAnswer stored = put(space, key, std::to_string(number), woken);
  stored.number = number;
  return stored;
}

StoreAnswer StoreServer::put(Space& space, const std::string& key, std::string value,
                             StoreReplies& woken) {
  const auto found = space.values.find(key);
  const bool there = found != space.values.end();
  const size_t before = there ? key.size() + found->second.size() : 0;
  const size_t after = total_bytes_ - before + key.size() + value.size();
  if (after > limits_.max_total_bytes || (!there && key_count_ >= limits_.max_keys))
    return refusal(text("the store is full: ", key_count_, " keys, ", bytes_text(total_bytes_)));
  total_bytes_ = after;
  if (there) {
    found->second = std::move(value);
    return {};
  }
  ++key_count_;
  space.values.emplace(key, std::move(value));
  wake(space, key, woken);
  return {};
}

void StoreServer::wake(Space& space, const std::string& key, StoreReplies& woken) {
  const auto waiting = space.waiting.find(key);
  if (waiting == space.waiting.end()) return;
  const std::set<StoreClient> clients = std::move(waiting->second);
  space.waiting.erase(waiting);
  for (const StoreClient client : clients) {
    Parked& parked = parked_.at(client);
    if (const std::string* missing = first_missing(space.values, parked.request.keys)) {
      parked.missing = *missing;
      space.waiting[*missing].insert(client);
      continue;
    }
    woken.push_back({client, encode(answer(space, parked.request, woken))});
    parked_.erase(client);
  }
}

void StoreServer::on_client_gone(StoreClient client) {
  const auto found = parked_.find(client);
  if (found == parked_.end()) return;
  auto& waiting = spaces_.at(found->second.request.space).waiting;
  const auto clients = waiting.find(found->second.missing);
  clients->second.erase(client);
  if (clients->second.empty()) waiting.erase(clients);
  parked_.erase(found);
}

void StoreServer::on_node_gone(uint64_t node) {
  auto each = parked_.lower_bound({node, 0});
  while (each != parked_.end() && each->first.node == node) {
    const StoreClient client = each->first;
    ++each;
    on_client_gone(client);
  }
}

StoreReplies StoreRelay::refuse_all(const std::string& reason) {
  StoreReplies told;
  for (const uint64_t peer : waiting_) told.push_back({{0, peer}, encode(refusal(reason))});
  waiting_.clear();
  return told;
}

}  // namespace lockstep::launcher::net
