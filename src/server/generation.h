// One answer in the making: from the prepared request to the last byte. It submits the choices to the engine,
// sends what ReplyWriter makes of their tokens, and cancels them in the engine as soon as nobody waits for
// them: the client left, a stop string ended a choice, or another choice failed. Lives on the io thread; the
// engine's sinks reach it through the server's inbox.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/engine_client.h"
#include "server/http_types.h"
#include "server/metrics.h"
#include "server/prepare.h"
#include "server/reply_writer.h"

namespace sluice::server {

class Generation;

// What all generations of a front share. Outlives them.
struct GenerationHost {
  cluster::EngineClient& client;
  const ModelContext& model;
  Metrics& metrics;
  std::function<void(std::function<void()>)> post;  // to the io thread, from any
  std::function<uint64_t()> draw;                   // random numbers, for ids and seeds
  std::function<void(Generation&)> done;            // lets go of it
  Nanos ping_after;                                 // of a stream's silence
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(GenerationHost& host, std::shared_ptr<Responder> responder);

  // The request as the workers have prepared it, or their refusal.
  void start(ApiResult<PreparedRequest> prepared);
  // Ends it with an error: as the reply, or as a last event where the stream has begun.
  void fail(const ApiError& error);
  void client_left();
  // Sends a comment after long silence, so that nothing on the way takes the stream for dead.
  void tick(Nanos now);

 private:
  void submit(int choice);
  void on_output(int choice, const engine::Output& output);
  void send(std::string_view events);
  void cancel_open();
  void finish();

  GenerationHost& host_;
  std::shared_ptr<Responder> responder_;
  std::optional<PreparedRequest> request_;
  std::optional<ReplyWriter> writer_;
  std::vector<std::optional<uint64_t>> open_;  // the engine's id of each choice that is still at work
  bool streaming_ = false;                     // the head is out
  bool done_ = false;
  Nanos last_sent_ = 0;
};

}  // namespace sluice::server
