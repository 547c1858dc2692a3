// Stand-ins for what a front works with: a tokenizer and a template that can be read at a glance, and engines
// that do what the test says.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cluster/engine_client.h"
#include "server/model_context.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace sluice::server {

// Ids 0 to 255 are bytes; 256 and up are the given pieces, longest match first; those like <|this|> are
// special.
class FakeTokenizer : public text::Tokenizer {
 public:
  explicit FakeTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {
    for (int i = 0; i < 256; ++i) bytes_.emplace_back(1, static_cast<char>(i));
  }
  std::vector<int32_t> encode(std::string_view text, bool parse_special = true) const override {
    std::vector<int32_t> ids;
    while (!text.empty()) {
      int32_t best = static_cast<unsigned char>(text[0]);
      size_t length = 1;
      for (size_t i = 0; i < pieces_.size(); ++i) {
        const auto id = static_cast<int32_t>(256 + i);
        if (pieces_[i].size() > length && text.starts_with(pieces_[i]) &&
            (parse_special || !is_special(id))) {
          best = id;
          length = pieces_[i].size();
        }
      }
      ids.push_back(best);
      text.remove_prefix(length);
    }
    return ids;
  }
  std::string_view token_bytes(int32_t id) const override {
    if (id < 0 || id >= vocab_size()) return {};
    return id < 256 ? bytes_[static_cast<size_t>(id)] : pieces_[static_cast<size_t>(id - 256)];
  }
  bool is_special(int32_t id) const override { return token_bytes(id).starts_with("<|"); }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (!skip_special || !is_special(id)) text += token_bytes(id);
    }
    return text;
  }
  int vocab_size() const override { return 256 + static_cast<int>(pieces_.size()); }
  std::span<const int32_t> prefix_ids() const override { return {}; }
  std::span<const int32_t> suffix_ids() const override { return {}; }

 private:
  std::vector<std::string> bytes_;
  std::vector<std::string> pieces_;
};

// "<role>content" for each message, then "<assistant>"; a content of "raise" is refused.
class FakeTemplate : public text::ChatTemplate {
 public:
  using Context = nlohmann::ordered_json;
  Result<std::string> render(const Context& context) const override {
    std::string text;
    for (const auto& message : context.at("messages")) {
      const std::string content = message.at("content");
      if (content == "raise") return invalid_argument("roles must alternate");
      text += "<" + message.at("role").get<std::string>() + ">" + content;
    }
    if (context.value("add_generation_prompt", false)) text += "<assistant>";
    return text;
  }
};

inline ModelContext fake_model(std::vector<std::string> pieces = {"Hello", " world", "!", "<|end|>"},
                               int max_model_len = 1024) {
  ModelContext model;
  model.served_name = "demo";
  model.aliases = {"models/demo"};
  model.created = 1'700'000'000;
  model.fingerprint = "fp_test";
  model.tokenizer = std::make_unique<FakeTokenizer>(std::move(pieces));
  model.chat_template = std::make_unique<FakeTemplate>();
  model.vocab_size = model.tokenizer->vocab_size() + 8;
  model.max_model_len = max_model_len;
  return model;
}

// Engines that a test drives: it waits for requests and gives their tokens, or lets each request be answered
// by a thread with the tokens of `answer`.
class FakeEngineClient : public cluster::EngineClient {
 public:
  struct Submitted {
    uint64_t id = 0;
    engine::Request request;
    engine::Sink sink;
    bool cancelled = false;
    int given = 0;
  };

  FakeEngineClient() { set_ready(true, "ready: 2 of 2 ranks in epoch 1.3"); }
  ~FakeEngineClient() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (answering_.joinable()) answering_.join();
  }

  cluster::Health health() const override {
    std::lock_guard lock(mutex_);
    return health_;
  }
  Result<uint64_t> submit(engine::Request request, engine::Sink sink) override {
    std::lock_guard lock(mutex_);
    if (!refusal_.ok()) return refusal_;
    if (!health_.ready) return unavailable("not ready: " + health_.message);
    const uint64_t id = submitted_.size() + 1;
    submitted_.push_back({id, std::move(request), std::move(sink), false, 0});
    changed_.notify_all();
    return id;
  }
  void cancel(uint64_t request) override {
    std::lock_guard lock(mutex_);
    submitted_.at(request - 1).cancelled = true;
    changed_.notify_all();
  }

  void set_ready(bool ready, std::string message) {
    std::lock_guard lock(mutex_);
    health_ = {.ready = ready, .message = std::move(message), .epoch = {1, 3}, .ranks = {}};
    for (int rank = 0; rank < 2; ++rank) {
      cluster::RankHealth state;
      state.rank = rank;
      state.pid = 100 + rank;
      state.state = ready ? "ready" : "joining";
      state.ready = ready;
      state.fabric.provider = "local";
      state.fabric.fabric_name = "mapped memory";
      state.fabric.peers = {{.rank = 1 - rank,
                             .local = true,
                             .puts_sent = 3,
                             .bytes_sent = 4096,
                             .puts_received = 3,
                             .bytes_received = 4096}};
      health_.ranks.push_back(std::move(state));
    }
  }
  void refuse_with(Status status) {
    std::lock_guard lock(mutex_);
    refusal_ = std::move(status);
  }

  // Blocks until that many requests have come in all; false after ten seconds.
  bool wait_submitted(size_t count) {
    return wait([&] { return submitted_.size() >= count; });
  }
  bool wait_cancelled(uint64_t id) {
    return wait([&] { return submitted_.size() >= id && submitted_[id - 1].cancelled; });
  }
  bool cancelled(uint64_t id) {
    std::lock_guard lock(mutex_);
    return submitted_.at(id - 1).cancelled;
  }
  engine::Request request(uint64_t id) {
    std::lock_guard lock(mutex_);
    return submitted_.at(id - 1).request;
  }
  size_t submitted() {
    std::lock_guard lock(mutex_);
    return submitted_.size();
  }

  // The next token of a request. With Finish::stop it is the stop token.
  void give(uint64_t id, int32_t token, engine::Finish finish = engine::Finish::none) {
    engine::Output output;
    output.request = id;
    output.token = token;
    output.finish = finish;
    if (finish == engine::Finish::stop) output.stop_token = token;
    engine::Sink sink;
    {
      std::lock_guard lock(mutex_);
      Submitted& entry = submitted_.at(id - 1);
      output.index = entry.given++;
      sink = entry.sink;
    }
    sink(output);
  }
  void fail(uint64_t id, Status error) {
    engine::Output output;
    output.request = id;
    output.finish = engine::Finish::error;
    output.error = std::move(error);
    engine::Sink sink;
    {
      std::lock_guard lock(mutex_);
      sink = submitted_.at(id - 1).sink;
    }
    sink(output);
  }

  // From now on a thread gives each request these tokens, the last one as its stop token.
  void answer_all(std::vector<int32_t> tokens) {
    answering_ = std::thread([this, tokens = std::move(tokens)] {
      for (uint64_t next = 1;; ++next) {
        {
          std::unique_lock lock(mutex_);
          changed_.wait(lock, [&] { return stop_ || submitted_.size() >= next; });
          if (stop_) return;
        }
        for (size_t i = 0; i < tokens.size(); ++i) {
          give(next, tokens[i], i + 1 == tokens.size() ? engine::Finish::stop : engine::Finish::none);
        }
      }
    });
  }

 private:
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), condition);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  cluster::Health health_;
  Status refusal_;
  std::deque<Submitted> submitted_;
  bool stop_ = false;
  std::thread answering_;
};

}  // namespace sluice::server
