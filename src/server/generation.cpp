#include "server/generation.h"

#include <fmt/format.h>

#include "base/log.h"

namespace sluice::server {

Generation::Generation(GenerationHost& host, std::shared_ptr<Responder> responder)
    : host_(host), responder_(std::move(responder)), last_sent_(now()) {}

void Generation::start(ApiResult<PreparedRequest> prepared) {
  if (done_) return;
  if (!prepared.ok()) return fail(prepared.error());
  request_ = *std::move(prepared);
  const char* prefix = request_->parsed.kind == ApiKind::chat ? "chatcmpl" : "cmpl";
  ReplyIdentity identity{
      .id = fmt::format("{}-{:016x}{:08x}", prefix, host_.draw(), host_.draw() & 0xffffffffU),
      .created = std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count(),
      .model = host_.model.served_name,
      .fingerprint = host_.model.fingerprint};
  writer_.emplace(*request_, std::move(identity), host_.model.tokenizer.get());
  open_.resize(static_cast<size_t>(request_->choices()));
  host_.metrics.prompt_tokens += static_cast<uint64_t>(writer_->prompt_tokens());
  for (int choice = 0; choice < request_->choices() && !done_; ++choice) submit(choice);
}

void Generation::submit(int choice) {
  auto sink = [post = host_.post, self = weak_from_this(), choice](const engine::Output& output) {
    post([self, choice, output] {
      if (const auto generation = self.lock()) generation->on_output(choice, output);
    });
  };
  auto id = host_.client.submit(request_->engine_request(choice, host_.draw()), std::move(sink));
  if (!id.ok()) return fail(to_api_error(id.status()));
  open_[static_cast<size_t>(choice)] = *id;
}

void Generation::on_output(int choice, const engine::Output& output) {
  if (done_ || writer_->choice(choice).finished()) return;
  const int before = writer_->choice(choice).tokens();
  const std::string events = writer_->feed(choice, output);
  const Completion& completion = writer_->choice(choice);
  host_.metrics.generation_tokens += static_cast<uint64_t>(completion.tokens() - before);
  auto& id = open_[static_cast<size_t>(choice)];
  if (output.finish != engine::Finish::none) {
    id.reset();
  } else if (completion.finished()) {
    host_.client.cancel(*std::exchange(id, std::nullopt));
  }
  if (writer_->error()) return fail(*writer_->error());
  if (!events.empty()) send(events);
  if (!done_ && writer_->finished()) finish();
}

void Generation::send(std::string_view events) {
  if (!streaming_) {
    streaming_ = true;
    responder_->begin_stream("text/event-stream; charset=utf-8",
                             {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  }
  last_sent_ = now();
  responder_->write(events);
}

void Generation::finish() {
  const auto self = shared_from_this();
  done_ = true;
  if (request_->parsed.stream) {
    send(writer_->finish());
    responder_->end_stream();
  } else {
    responder_->reply({.status = 200, .content_type = "application/json", .body = writer_->finish()});
  }
  host_.done(*this);
}

void Generation::fail(const ApiError& error) {
  if (done_) return;
  const auto self = shared_from_this();
  done_ = true;
  cancel_open();
  if (error.status >= 500) log::warning("a request fails with {}: {}", error.status, error.message);
  if (streaming_) {
    responder_->write(ReplyWriter::error_event(error));
    responder_->end_stream();
  } else {
    responder_->reply(error.reply());
  }
  host_.done(*this);
}

void Generation::client_left() {
  if (done_) return;
  const auto self = shared_from_this();
  done_ = true;
  ++host_.metrics.clients_left;
  cancel_open();
  host_.done(*this);
}

void Generation::cancel_open() {
  for (auto& id : open_) {
    if (id) host_.client.cancel(*std::exchange(id, std::nullopt));
  }
}

void Generation::tick(Nanos now) {
  if (done_ || !request_ || !request_->parsed.stream || now < last_sent_ + host_.ping_after) return;
  send(": ping\n\n");
}

}  // namespace sluice::server
