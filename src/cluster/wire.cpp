#include "cluster/wire.h"

#include <grpc/support/log.h>
#include <grpcpp/support/status.h>

#include "base/log.h"
#include "control.pb.h"

namespace sluice::cluster {
namespace {

Code code_from_wire(int code) {
  const bool known = code > static_cast<int>(Code::ok) && code <= static_cast<int>(Code::internal);
  return known ? static_cast<Code>(code) : Code::internal;
}

engine::Finish finish_from_wire(v1::Finish finish) {
  switch (finish) {
    case v1::FINISH_NONE:
      return engine::Finish::none;
    case v1::FINISH_STOP:
      return engine::Finish::stop;
    case v1::FINISH_LENGTH:
      return engine::Finish::length;
    case v1::FINISH_CANCELLED:
      return engine::Finish::cancelled;
    default:
      return engine::Finish::error;
  }
}

v1::Finish finish_to_wire(engine::Finish finish) {
  switch (finish) {
    case engine::Finish::none:
      return v1::FINISH_NONE;
    case engine::Finish::stop:
      return v1::FINISH_STOP;
    case engine::Finish::length:
      return v1::FINISH_LENGTH;
    case engine::Finish::cancelled:
      return v1::FINISH_CANCELLED;
    case engine::Finish::error:
      return v1::FINISH_ERROR;
  }
  return v1::FINISH_ERROR;
}

}  // namespace

void adopt_grpc_log() {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  gpr_set_log_function([](gpr_log_func_args* line) { log::debug("grpc: {}", line->message); });
}

grpc::Status to_grpc(const Status& status) {
  const auto code = [&] {
    switch (status.code()) {
      case Code::ok:
        return grpc::StatusCode::OK;
      case Code::invalid_argument:
        return grpc::StatusCode::INVALID_ARGUMENT;
      case Code::not_found:
        return grpc::StatusCode::NOT_FOUND;
      case Code::out_of_range:
        return grpc::StatusCode::OUT_OF_RANGE;
      case Code::resource_exhausted:
        return grpc::StatusCode::RESOURCE_EXHAUSTED;
      case Code::unavailable:
        return grpc::StatusCode::UNAVAILABLE;
      case Code::deadline_exceeded:
        return grpc::StatusCode::DEADLINE_EXCEEDED;
      case Code::data_loss:
        return grpc::StatusCode::DATA_LOSS;
      case Code::unimplemented:
        return grpc::StatusCode::UNIMPLEMENTED;
      case Code::aborted:
        return grpc::StatusCode::ABORTED;
      case Code::cancelled:
        return grpc::StatusCode::CANCELLED;
      case Code::internal:
        break;
    }
    return grpc::StatusCode::INTERNAL;
  }();
  return {code, status.message()};
}

Status from_grpc(const grpc::Status& status) {
  const auto code = [&] {
    switch (status.error_code()) {
      case grpc::StatusCode::OK:
        return Code::ok;
      case grpc::StatusCode::INVALID_ARGUMENT:
        return Code::invalid_argument;
      case grpc::StatusCode::NOT_FOUND:
        return Code::not_found;
      case grpc::StatusCode::OUT_OF_RANGE:
        return Code::out_of_range;
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
        return Code::resource_exhausted;
      case grpc::StatusCode::UNAVAILABLE:
        return Code::unavailable;
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return Code::deadline_exceeded;
      case grpc::StatusCode::DATA_LOSS:
        return Code::data_loss;
      case grpc::StatusCode::UNIMPLEMENTED:
        return Code::unimplemented;
      case grpc::StatusCode::ABORTED:
        return Code::aborted;
      case grpc::StatusCode::CANCELLED:
        return Code::cancelled;
      default:
        return Code::internal;
    }
  }();
  return {code, status.error_message()};
}

void to_wire(const EpochId& epoch, v1::Epoch& wire) {
  wire.set_term(epoch.term);
  wire.set_number(epoch.number);
}

EpochId from_wire(const v1::Epoch& wire) { return {.term = wire.term(), .number = wire.number()}; }

void to_wire(const fabric::Report& report, v1::FabricReport& wire) {
  wire.set_provider(report.provider);
  wire.set_fabric_name(report.fabric_name);
  wire.set_library_version(report.library_version);
  wire.set_rails(report.rails);
  wire.set_wire_version(report.wire_version);
  for (const fabric::PeerTraffic& peer : report.peers) {
    v1::PeerTraffic& traffic = *wire.add_peers();
    traffic.set_rank(peer.rank);
    traffic.set_local(peer.local);
    traffic.set_puts_sent(peer.puts_sent);
    traffic.set_bytes_sent(peer.bytes_sent);
    traffic.set_puts_received(peer.puts_received);
    traffic.set_bytes_received(peer.bytes_received);
  }
}

fabric::Report from_wire(const v1::FabricReport& wire) {
  fabric::Report report;
  report.provider = wire.provider();
  report.fabric_name = wire.fabric_name();
  report.library_version = wire.library_version();
  report.rails = wire.rails();
  report.wire_version = wire.wire_version();
  for (const v1::PeerTraffic& traffic : wire.peers()) {
    report.peers.push_back({.rank = traffic.rank(),
                            .local = traffic.local(),
                            .puts_sent = traffic.puts_sent(),
                            .bytes_sent = traffic.bytes_sent(),
                            .puts_received = traffic.puts_received(),
                            .bytes_received = traffic.bytes_received()});
  }
  return report;
}

void to_wire(const Introduction& who, v1::Hello& wire) {
  wire.set_rank(who.rank);
  wire.set_pid(who.pid);
  wire.set_address(who.address);
  wire.set_fingerprint(who.fingerprint);
  to_wire(who.highest_epoch, *wire.mutable_highest_epoch());
}

Introduction from_wire(const v1::Hello& wire) {
  return {.rank = wire.rank(),
          .pid = wire.pid(),
          .address = wire.address(),
          .fingerprint = wire.fingerprint(),
          .highest_epoch = from_wire(wire.highest_epoch())};
}

void to_wire(const Breakage& why, v1::RankBroken& wire) {
  wire.set_blamed_rank(why.blamed_rank);
  wire.set_layer(why.layer);
  wire.set_phase(why.phase);
  wire.set_reason(why.reason);
}

Breakage from_wire(const v1::RankBroken& wire) {
  return {.blamed_rank = wire.blamed_rank(),
          .layer = wire.layer(),
          .phase = wire.phase(),
          .reason = wire.reason()};
}

void to_wire(const Directive& directive, v1::Directive& wire) {
  if (directive.kind == Directive::Kind::begin) {
    to_wire(directive.epoch, *wire.mutable_begin()->mutable_epoch());
    for (int member : directive.members) wire.mutable_begin()->add_members(member);
  } else {
    to_wire(directive.epoch, *wire.mutable_end()->mutable_epoch());
    wire.mutable_end()->set_reason(directive.reason);
  }
}

Directive from_wire(const v1::Directive& wire) {
  Directive directive;
  if (wire.has_begin()) {
    directive.kind = Directive::Kind::begin;
    directive.epoch = from_wire(wire.begin().epoch());
    directive.members.assign(wire.begin().members().begin(), wire.begin().members().end());
  } else {
    directive.kind = Directive::Kind::end;
    directive.epoch = from_wire(wire.end().epoch());
    directive.reason = wire.end().reason();
  }
  return directive;
}

void to_wire(const ClusterView& view, v1::ClusterState& wire) {
  to_wire(view.health.epoch, *wire.mutable_epoch());
  wire.set_ready(view.health.ready);
  wire.set_message(view.health.message);
  for (size_t i = 0; i < view.health.ranks.size(); ++i) {
    const RankHealth& health = view.health.ranks[i];
    v1::RankState& state = *wire.add_ranks();
    state.set_rank(health.rank);
    state.set_pid(health.pid);
    state.set_state(health.state);
    state.set_ready(health.ready);
    state.set_address(view.addresses[i]);
    to_wire(health.fabric, *state.mutable_fabric());
  }
}

ClusterView from_wire(const v1::ClusterState& wire) {
  ClusterView view;
  view.health.ready = wire.ready();
  view.health.message = wire.message();
  view.health.epoch = from_wire(wire.epoch());
  for (const v1::RankState& state : wire.ranks()) {
    view.health.ranks.push_back({.rank = state.rank(),
                                 .pid = state.pid(),
                                 .state = state.state(),
                                 .ready = state.ready(),
                                 .fabric = from_wire(state.fabric())});
    view.addresses.push_back(state.address());
  }
  return view;
}

void to_wire(const engine::Request& request, v1::GenerateRequest& wire) {
  wire.mutable_prompt()->Add(request.prompt.begin(), request.prompt.end());
  wire.mutable_resumed()->Add(request.resumed.begin(), request.resumed.end());
  v1::Sampling& sampling = *wire.mutable_sampling();
  sampling.set_temperature(request.sampling.temperature);
  sampling.set_top_k(request.sampling.top_k);
  sampling.set_top_p(request.sampling.top_p);
  sampling.set_seed(request.sampling.seed);
  wire.set_max_tokens(request.max_tokens);
  wire.mutable_stop_token_ids()->Add(request.stop_token_ids.begin(), request.stop_token_ids.end());
  wire.set_ignore_eos(request.ignore_eos);
}

engine::Request from_wire(const v1::GenerateRequest& wire) {
  engine::Request request;
  request.prompt.assign(wire.prompt().begin(), wire.prompt().end());
  request.resumed.assign(wire.resumed().begin(), wire.resumed().end());
  request.sampling = {.temperature = wire.sampling().temperature(),
                      .top_k = wire.sampling().top_k(),
                      .top_p = wire.sampling().top_p(),
                      .seed = wire.sampling().seed()};
  request.max_tokens = wire.max_tokens();
  request.stop_token_ids.assign(wire.stop_token_ids().begin(), wire.stop_token_ids().end());
  request.ignore_eos = wire.ignore_eos();
  return request;
}

void to_wire(const engine::Output& output, v1::GenerateReply& wire) {
  wire.set_index(output.index);
  wire.set_token(output.token);
  wire.set_logprob(output.logprob);
  wire.set_finish(finish_to_wire(output.finish));
  wire.set_stop_token(output.stop_token);
  if (output.finish != engine::Finish::error) return;
  wire.set_error(output.error.message());
  wire.set_error_code(static_cast<int>(output.error.code()));
}

engine::Output from_wire(const v1::GenerateReply& wire) {
  engine::Output output;
  output.index = wire.index();
  output.token = wire.token();
  output.logprob = wire.logprob();
  output.finish = finish_from_wire(wire.finish());
  output.stop_token = wire.stop_token();
  if (output.finish == engine::Finish::error)
    output.error = {code_from_wire(wire.error_code()), wire.error()};
  return output;
}

}  // namespace sluice::cluster
