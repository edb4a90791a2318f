//! Parts of transactions, by short names.

use super::keys;
use super::proto::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseOp, TxnRequest, compare, request_op,
    response_op,
};

/// etcd carries out no more in one transaction, unless it is told to.
pub(super) const MOST: usize = 100;

const ASCENDING: i32 = 1;
const BY_CREATION: i32 = 2;
const LESS: i32 = 2;
const VERSION: i32 = 0;
const CREATE: i32 = 1;
const MOD: i32 = 2;

pub(super) fn txn(compare: Vec<Compare>, success: Vec<RequestOp>, failure: Vec<RequestOp>) -> TxnRequest {
    TxnRequest { compare, success, failure }
}

fn op(request: request_op::Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

pub(super) fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> RequestOp {
    op(request_op::Request::RequestPut(PutRequest { key, value, lease, ..PutRequest::default() }))
}

/// Changes nothing but the key's revision, so that those who watch it are told.
pub(super) fn touch(key: Vec<u8>) -> RequestOp {
    op(request_op::Request::RequestPut(PutRequest { key, ignore_value: true, ignore_lease: true, ..PutRequest::default() }))
}

pub(super) fn delete(key: Vec<u8>) -> RequestOp {
    op(request_op::Request::RequestDeleteRange(DeleteRangeRequest { key, range_end: Vec::new() }))
}

/// Deletes a range of keys.
pub(super) fn delete_range(key: Vec<u8>, range_end: Vec<u8>) -> RequestOp {
    op(request_op::Request::RequestDeleteRange(DeleteRangeRequest { key, range_end }))
}

pub(super) fn get(key: Vec<u8>) -> RequestOp {
    op(request_op::Request::RequestRange(RangeRequest { key, ..RangeRequest::default() }))
}

/// All keys with this prefix, or the first `limit` of them, oldest first.
pub(super) fn oldest(prefix: Vec<u8>, limit: i64) -> RangeRequest {
    let range_end = keys::end_of(&prefix);
    RangeRequest { key: prefix, range_end, limit, sort_order: ASCENDING, sort_target: BY_CREATION, ..RangeRequest::default() }
}

pub(super) fn range(request: RangeRequest) -> RequestOp {
    op(request_op::Request::RequestRange(request))
}

fn equal(target: i32, key: Vec<u8>, range_end: Vec<u8>, union: compare::TargetUnion) -> Compare {
    Compare { result: 0, target, key, range_end, target_union: Some(union) }
}

pub(super) fn version_is(key: Vec<u8>, version: i64) -> Compare {
    equal(VERSION, key, Vec::new(), compare::TargetUnion::Version(version))
}

pub(super) fn created_at(key: Vec<u8>, revision: i64) -> Compare {
    equal(CREATE, key, Vec::new(), compare::TargetUnion::CreateRevision(revision))
}

pub(super) fn is_absent(key: Vec<u8>) -> Compare {
    created_at(key, 0)
}

pub(super) fn is_present(key: Vec<u8>) -> Compare {
    Compare { result: 1, ..created_at(key, 0) }
}

/// No key has this prefix.
pub(super) fn none_below(prefix: Vec<u8>) -> Compare {
    let end = keys::end_of(&prefix);
    equal(CREATE, prefix, end, compare::TargetUnion::CreateRevision(0))
}

/// No key with this prefix was made after that revision.
pub(super) fn none_since(prefix: Vec<u8>, revision: i64) -> Compare {
    let end = keys::end_of(&prefix);
    Compare { result: LESS, ..equal(CREATE, prefix, end, compare::TargetUnion::CreateRevision(revision.saturating_add(1))) }
}

pub(super) fn modified_at(key: Vec<u8>, revision: i64) -> Compare {
    equal(MOD, key, Vec::new(), compare::TargetUnion::ModRevision(revision))
}

/// The keys that each read of a transaction found, in the order of the reads.
pub(super) fn found(responses: Vec<ResponseOp>) -> impl Iterator<Item = Vec<KeyValue>> {
    responses.into_iter().filter_map(|response| match response.response {
        Some(response_op::Response::ResponseRange(range)) => Some(range.kvs),
        _ => None,
    })
}

/// How many keys a transaction deleted.
pub(super) fn deleted(responses: &[ResponseOp]) -> i64 {
    let of = |response: &ResponseOp| match &response.response {
        Some(response_op::Response::ResponseDeleteRange(gone)) => gone.deleted,
        _ => 0,
    };
    responses.iter().map(of).sum()
}
