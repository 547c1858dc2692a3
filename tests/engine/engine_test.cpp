// One engine with a model without weights: batching, limits, cancellation, preemption, errors.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "harness.h"

namespace sluice::engine {
namespace {

class EngineTest : public ::testing::Test {
 protected:
  void start(Options options = toy_options()) {
    cluster_ = std::make_unique<ToyCluster>(1, options);
    cluster_->enter(1);
  }
  Engine& engine() { return cluster_->engine(); }
  std::string refusal(Request request) {
    const auto id = engine().submit(std::move(request), [](const Output&) { ADD_FAILURE() << "called"; });
    EXPECT_FALSE(id.ok());
    return id.ok() ? "" : std::string(code_name(id.status().code())) + ": " + id.status().message();
  }

  std::unique_ptr<ToyCluster> cluster_;
};

TEST_F(EngineTest, GivesTheModelsText) {
  start();
  const auto outputs = cluster_->run(greedy_request({1, 2, 3}, 10));
  EXPECT_EQ(text_of(outputs), toy_text({1, 2, 3}, 10));
  EXPECT_EQ(outputs.back().finish, Finish::length);
  EXPECT_LT(outputs.back().logprob, 0);
}

TEST_F(EngineTest, LongPromptsArePrefilledInChunks) {
  start();
  const auto prompt = toy_prompt(3, 100);  // 7 chunks of at most 16
  EXPECT_EQ(text_of(cluster_->run(greedy_request(prompt, 5))), toy_text(prompt, 5));
  EXPECT_LE(cluster_->model().largest_batch, 16);
}

// What a request says must not depend on what else runs: greedy and sampled, many lengths, all at once.
TEST_F(EngineTest, ManyAtOnceEqualOneByOne) {
  start();
  const auto make = [](uint64_t i) {
    Request request =
        greedy_request(toy_prompt(i, 1 + static_cast<int>(i * 7 % 60)), 3 + static_cast<int>(i % 30));
    if (i % 2 == 1) request.sampling = {.temperature = 0.9F, .top_k = 20, .top_p = 0.95F, .seed = i};
    return request;
  };
  std::vector<Listener> together(40);
  for (uint64_t i = 0; i < together.size(); ++i) {
    ASSERT_TRUE(engine().submit(make(i), together[i].sink()).ok());
  }
  std::vector<std::vector<int32_t>> texts;
  for (auto& listener : together) texts.push_back(text_of(listener.wait()));
  for (uint64_t i = 0; i < together.size(); ++i) EXPECT_EQ(text_of(cluster_->run(make(i))), texts[i]) << i;
  EXPECT_EQ(engine().stats().kv_blocks_free, engine().stats().kv_blocks_total);
}

TEST_F(EngineTest, PreemptionUnderATinyCacheChangesNoText) {
  Options options = toy_options();
  options.kv_blocks = 20;  // 80 positions for 8 requests of 30 to 50
  start(options);
  int rows = 0;
  cluster_->model().on_forward = [&](const model::Batch& batch) {
    rows += static_cast<int>(batch.tokens.size());
  };
  std::vector<Listener> listeners(16);
  int needed = 0;
  for (uint64_t i = 0; i < listeners.size(); ++i) {
    ASSERT_TRUE(engine()
                    .submit(greedy_request(toy_prompt(i, 10), 20 + static_cast<int>(i)), listeners[i].sink())
                    .ok());
    needed += 10 + 20 + static_cast<int>(i) - 1;
  }
  for (uint64_t i = 0; i < listeners.size(); ++i) {
    EXPECT_EQ(text_of(listeners[i].wait()), toy_text(toy_prompt(i, 10), 20 + static_cast<int>(i))) << i;
  }
  EXPECT_GT(rows, needed + 1) << "nothing was preempted: the test tests nothing";
  EXPECT_EQ(engine().stats().kv_blocks_free, 20);
}

TEST_F(EngineTest, SeedDecidesTheText) {
  start();
  const auto text = [&](uint64_t seed) {
    Request request = greedy_request({5, 6}, 30);
    request.sampling = {.temperature = 1.5F, .seed = seed};
    return text_of(cluster_->run(request));
  };
  EXPECT_NE(text(1), text(2));
  std::vector<int32_t> context{5, 6};
  for (const int32_t token : text(1)) {
    const auto position = static_cast<int64_t>(context.size());
    EXPECT_EQ(token, sample(toy_logits(context), {.temperature = 1.5F, .seed = 1}, position));
    context.push_back(token);
  }
}

TEST_F(EngineTest, ResumedTokensCountAsOutput) {
  start();
  const auto whole = toy_text({1, 2, 3}, 12);
  Request request = greedy_request({1, 2, 3}, 12);
  request.resumed.assign(whole.begin(), whole.begin() + 5);
  const auto outputs = cluster_->run(request);
  EXPECT_EQ(text_of(outputs, 5), std::vector<int32_t>(whole.begin() + 5, whole.end()));
  EXPECT_EQ(outputs.back().finish, Finish::length);

  request.sampling = {.temperature = 1, .seed = 9};
  request.resumed.clear();
  const auto drawn = text_of(cluster_->run(request));
  request.resumed.assign(drawn.begin(), drawn.begin() + 7);
  EXPECT_EQ(text_of(cluster_->run(request), 7), std::vector<int32_t>(drawn.begin() + 7, drawn.end()));
}

TEST_F(EngineTest, StopsAtEosAndAtStopIds) {
  const auto text = toy_text({4, 4}, 20);
  Options options = toy_options();
  options.eos_token_ids = {text[6]};
  start(options);
  const auto first = [&](int32_t id) { return std::find(text.begin(), text.end(), id) - text.begin(); };

  auto outputs = cluster_->run(greedy_request({4, 4}, 20));
  EXPECT_EQ(outputs.back().finish, Finish::stop);
  EXPECT_EQ(outputs.back().stop_token, text[6]);
  EXPECT_EQ(outputs.back().token, text[6]);
  EXPECT_EQ(outputs.back().index, first(text[6]));

  Request request = greedy_request({4, 4}, 20);
  request.ignore_eos = true;
  EXPECT_EQ(text_of(cluster_->run(request)), text);

  request.stop_token_ids = {text[3]};
  outputs = cluster_->run(request);
  EXPECT_EQ(outputs.back().finish, Finish::stop);
  EXPECT_EQ(outputs.back().index, first(text[3]));
}

TEST_F(EngineTest, CutsMaxTokensToWhatTheContextLeaves) {
  Options options = toy_options();
  options.max_model_len = 20;
  start(options);
  const auto outputs = cluster_->run(greedy_request(toy_prompt(1, 15), 1000));
  EXPECT_EQ(outputs.size(), 5U);
  EXPECT_EQ(outputs.back().finish, Finish::length);
  EXPECT_EQ(cluster_->run(greedy_request(toy_prompt(1, 19), 1000)).size(), 1U);
}

TEST_F(EngineTest, CutsMaxTokensToWhatTheCacheHolds) {
  Options options = toy_options();
  options.kv_blocks = 3;
  start(options);
  EXPECT_EQ(text_of(cluster_->run(greedy_request({1, 2}, 1000))), toy_text({1, 2}, 10));
}

TEST_F(EngineTest, GivesTheLogitsWhenAsked) {
  start();
  Request request = greedy_request({7}, 2);
  request.want_logits = true;
  const auto outputs = cluster_->run(request);
  EXPECT_EQ(outputs[0].logits, toy_logits(std::vector<int32_t>{7}));
  EXPECT_EQ(outputs[1].logits, toy_logits(std::vector<int32_t>{7, outputs[0].token}));
}

TEST_F(EngineTest, RefusesBadRequestsWithFieldValueAndRange) {
  Options options = toy_options();
  options.max_model_len = 50;
  start(options);
  const auto with = [](auto change) {
    Request request = greedy_request({1, 2, 3}, 4);
    change(request);
    return request;
  };
  using R = Request&;
  EXPECT_EQ(refusal(with([](R r) { r.prompt.clear(); })),
            "invalid_argument: prompt is empty; it must hold at least one token");
  EXPECT_EQ(refusal(with([](R r) { r.prompt[1] = 97; })),
            "invalid_argument: prompt[1] is 97; the vocabulary has ids 0 to 96");
  EXPECT_EQ(refusal(with([](R r) { r.prompt[0] = -1; })),
            "invalid_argument: prompt[0] is -1; the vocabulary has ids 0 to 96");
  EXPECT_EQ(refusal(with([](R r) {
              r.resumed = {1, 500};
            })),
            "invalid_argument: resumed[1] is 500; the vocabulary has ids 0 to 96");
  EXPECT_EQ(refusal(with([](R r) { r.stop_token_ids = {97}; })),
            "invalid_argument: stop_token_ids[0] is 97; the vocabulary has ids 0 to 96");
  EXPECT_EQ(refusal(with([](R r) { r.sampling.temperature = -1; })),
            "invalid_argument: temperature is -1; it must be a finite number from 0 (greedy) up");
  EXPECT_EQ(refusal(with([](R r) { r.sampling.temperature = std::nanf(""); })),
            "invalid_argument: temperature is nan; it must be a finite number from 0 (greedy) up");
  EXPECT_EQ(refusal(with([](R r) { r.sampling.top_p = 0; })),
            "invalid_argument: top_p is 0; it must be above 0 and at most 1");
  EXPECT_EQ(refusal(with([](R r) { r.sampling.top_p = 1.5F; })),
            "invalid_argument: top_p is 1.5; it must be above 0 and at most 1");
  EXPECT_EQ(refusal(with([](R r) { r.sampling.top_p = std::nanf(""); })),
            "invalid_argument: top_p is nan; it must be above 0 and at most 1");
  EXPECT_EQ(refusal(with([](R r) { r.sampling.top_k = -2; })),
            "invalid_argument: top_k is -2; it must be 0 (all tokens) or more");
  EXPECT_EQ(refusal(with([](R r) { r.max_tokens = 0; })),
            "invalid_argument: max_tokens is 0; it must be at least 1");
  EXPECT_EQ(refusal(with([](R r) { r.prompt.assign(50, 1); })),
            "invalid_argument: prompt has 50 tokens; max_model_len is 50, so at most 49 leave room for one "
            "of output");
  EXPECT_EQ(refusal(with([](R r) {
              r.resumed = {1, 2, 3, 4};
            })),
            "invalid_argument: resumed has 4 tokens; max_tokens is 4, so nothing is left to generate");
  EXPECT_EQ(engine().stats().waiting, 0);
  EXPECT_EQ(text_of(cluster_->run(greedy_request({1}, 3))), toy_text({1}, 3));
}

TEST_F(EngineTest, RefusesAPromptOverTheWholeCache) {
  Options options = toy_options();
  options.kv_blocks = 3;
  start(options);
  EXPECT_EQ(
      refusal(greedy_request(toy_prompt(1, 12), 1)),
      "invalid_argument: prompt has 12 tokens; the whole KV cache holds 12, so at most 11 leave room for one "
      "of output");
}

TEST_F(EngineTest, RefusesWhatTheQueueCannotHold) {
  Options options = toy_options();
  options.max_queued = 3;
  cluster_ = std::make_unique<ToyCluster>(1, options);  // no epoch: everything waits
  std::vector<Listener> listeners(3);
  for (auto& listener : listeners) {
    ASSERT_TRUE(engine().submit(greedy_request({1, 2}, 3), listener.sink()).ok());
  }
  EXPECT_EQ(refusal(greedy_request({1, 2}, 3)),
            "resource_exhausted: the queue of rank 0 is full: 3 requests wait, the limit is 3");
  cluster_->enter(1);
  for (auto& listener : listeners) EXPECT_EQ(text_of(listener.wait()), toy_text({1, 2}, 3));
  EXPECT_EQ(text_of(cluster_->run(greedy_request({1, 2}, 3))), toy_text({1, 2}, 3));
}

TEST_F(EngineTest, RefusesOptionsThatCannotWork) {
  ToyModel model(0, 1);
  const auto backend = make_toy_backend();
  const auto refused = [&](auto change) {
    Options options = toy_options();
    change(options);
    const auto engine = Engine::start(model, *backend, options, {});
    return engine.ok() ? std::string() : engine.status().message();
  };
  EXPECT_EQ(refused([](Options& o) { o.max_num_seqs = 0; }), "max_num_seqs is 0; it must be at least 1");
  EXPECT_EQ(refused([](Options& o) { o.max_num_batched_tokens = 0; }),
            "max_num_batched_tokens is 0; it must be at least 1");
  EXPECT_EQ(refused([](Options& o) { o.kv_blocks = 0; }), "kv_blocks is 0; it must be at least 1");
  EXPECT_EQ(refused([](Options& o) { o.canary_token = 97; }),
            "canary_token[0] is 97; the vocabulary has ids 0 to 96");
}

TEST_F(EngineTest, CancellationFreesItsBlocksWithinOneStep) {
  start();
  Listener listener;
  std::atomic<uint64_t> id{0};
  std::atomic<int> steps_after{0};
  std::atomic<bool> cancelled{false};
  // Cancelled while a step is under way: the batch of the very next one must not hold it any more.
  cluster_->model().on_forward = [&](const model::Batch& batch) {
    if (cancelled && !batch.tokens.empty()) ++steps_after;
    if (!cancelled && id != 0 && listener.so_far().size() == 3) {
      engine().cancel(id);
      cancelled = true;
    }
  };
  id = engine().submit(greedy_request({1, 2, 3}, 200), listener.sink()).value();
  const auto outputs = listener.wait();
  EXPECT_EQ(outputs.back().finish, Finish::cancelled);
  EXPECT_EQ(outputs.back().token, -1);
  EXPECT_EQ(text_of(outputs), toy_text({1, 2, 3}, 4));
  EXPECT_EQ(steps_after, 0);
  EXPECT_EQ(engine().stats().kv_blocks_free, engine().stats().kv_blocks_total);
  EXPECT_EQ(engine().stats().running, 0);
  engine().cancel(id);
  engine().cancel(12345);
  EXPECT_EQ(text_of(cluster_->run(greedy_request({1}, 3))), toy_text({1}, 3));
}

TEST_F(EngineTest, CancelsWhatWaitsWithoutAnEpoch) {
  cluster_ = std::make_unique<ToyCluster>(1);
  Listener listener;
  const uint64_t id = engine().submit(greedy_request({1}, 3), listener.sink()).value();
  engine().cancel(id);
  EXPECT_EQ(listener.wait().back().finish, Finish::cancelled);
}

TEST_F(EngineTest, SinksMaySubmitAndCancel) {
  start();
  Listener second;
  Listener victim;
  std::atomic<uint64_t> victim_id{0};
  victim_id = engine().submit(greedy_request({9}, 250), victim.sink()).value();
  ASSERT_TRUE(engine()
                  .submit(greedy_request({1}, 1),
                          [&](const Output&) {
                            engine().cancel(victim_id);
                            EXPECT_TRUE(engine().submit(greedy_request({2}, 2), second.sink()).ok());
                          })
                  .ok());
  EXPECT_EQ(text_of(second.wait()), toy_text({2}, 2));
  EXPECT_EQ(victim.wait().back().finish, Finish::cancelled);
}

TEST_F(EngineTest, NonFiniteLogitsFailTheRequestAndNoOther) {
  start();
  cluster_->model().edit_logits = [](std::span<const int32_t> context, std::span<float> logits) {
    if (context[0] == 13 && context.size() == 4) logits[5] = std::numeric_limits<float>::quiet_NaN();
  };
  Listener good;
  ASSERT_TRUE(engine().submit(greedy_request({12, 1}, 20), good.sink()).ok());
  const auto outputs = cluster_->run(greedy_request({13, 1}, 20));
  ASSERT_EQ(outputs.size(), 3U);
  EXPECT_EQ(outputs.back().finish, Finish::error);
  EXPECT_EQ(outputs.back().token, -1);
  EXPECT_EQ(outputs.back().error.message(),
            "request 2, position 4: the logit of token 5 is nan; every logit must be finite");
  EXPECT_EQ(text_of(good.wait()), toy_text({12, 1}, 20));
  EXPECT_EQ(engine().stats().kv_blocks_free, engine().stats().kv_blocks_total);
}

TEST_F(EngineTest, DestructionCancelsWhatIsOpen) {
  Listener running;
  Listener waiting;
  {
    Options options = toy_options();
    options.max_num_seqs = 1;
    start(options);
    cluster_->model().on_forward = [](const model::Batch&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // so that they are open still
    };
    ASSERT_TRUE(engine().submit(greedy_request({1}, 250), running.sink()).ok());
    ASSERT_TRUE(engine().submit(greedy_request({2}, 250), waiting.sink()).ok());
    running.wait_for(1);
    cluster_.reset();
  }
  EXPECT_EQ(running.wait().back().finish, Finish::cancelled);
  EXPECT_EQ(waiting.wait().back().finish, Finish::cancelled);
}

TEST_F(EngineTest, CountsWhatItDid) {
  start();
  cluster_->wait_ready(1);
  cluster_->run(greedy_request({1, 2, 3}, 5));
  cluster_->run(greedy_request({1, 2}, 7));
  const Stats stats = engine().stats();
  EXPECT_EQ(stats.epoch, 1U);
  EXPECT_TRUE(stats.ready);
  EXPECT_EQ(stats.tokens_generated, 12U);
  EXPECT_EQ(stats.prompt_tokens, 5U);
  EXPECT_EQ(stats.requests_finished, 2U);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_GE(stats.steps, 12U);
}

}  // namespace
}  // namespace sluice::engine
