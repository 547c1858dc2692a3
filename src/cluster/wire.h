// Between what goes over the wire (proto/control.proto) and the program's own types.
#pragma once

#include "base/status.h"
#include "cluster/engine_client.h"
#include "cluster/membership.h"
#include "engine/engine.h"

namespace grpc {
class Status;
}

namespace sluice::v1 {
class ClusterState;
class Directive;
class Epoch;
class FabricReport;
class GenerateReply;
class GenerateRequest;
class Hello;
class RankBroken;
}  // namespace sluice::v1

namespace sluice::cluster {

// In Join's initial metadata: the coordinator has accepted the Hello.
inline constexpr char kJoinedMetadata[] = "sluice-joined";

// The messages of gRPC's library go to our log, at level debug.
void adopt_grpc_log();

grpc::Status to_grpc(const Status& status);
Status from_grpc(const grpc::Status& status);

void to_wire(const EpochId& epoch, v1::Epoch& wire);
EpochId from_wire(const v1::Epoch& wire);

void to_wire(const fabric::Report& report, v1::FabricReport& wire);
fabric::Report from_wire(const v1::FabricReport& wire);

void to_wire(const Introduction& who, v1::Hello& wire);
Introduction from_wire(const v1::Hello& wire);

void to_wire(const Breakage& why, v1::RankBroken& wire);
Breakage from_wire(const v1::RankBroken& wire);

void to_wire(const Directive& directive, v1::Directive& wire);
Directive from_wire(const v1::Directive& wire);

void to_wire(const ClusterView& view, v1::ClusterState& wire);
ClusterView from_wire(const v1::ClusterState& wire);

void to_wire(const engine::Request& request, v1::GenerateRequest& wire);
engine::Request from_wire(const v1::GenerateRequest& wire);

// Without Output::request, which each side numbers for itself.
void to_wire(const engine::Output& output, v1::GenerateReply& wire);
engine::Output from_wire(const v1::GenerateReply& wire);

}  // namespace sluice::cluster
