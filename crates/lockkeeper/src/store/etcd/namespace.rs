//! `?prefix=`: all keys of the store lie below it, as with Go's `namespace` package. Put on and taken off here, so that nothing else knows of it.

use super::keys::end_of;
use super::proto::{
    Compare, KeyValue, RangeRequest, RequestOp, ResponseOp, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest,
    WatchResponse, request_op, response_op, watch_request,
};

/// The prefix of all keys; mostly empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Namespace(Vec<u8>);

impl Namespace {
    pub(super) fn new(prefix: &str) -> Self {
        Self(prefix.as_bytes().to_vec())
    }

    /// The prefix as text.
    pub(super) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    fn put_on(&self, key: &mut Vec<u8>) {
        if !self.0.is_empty() {
            key.splice(..0, self.0.iter().copied());
        }
    }

    /// The end of a range; one that has no end ends with the prefix.
    fn put_on_end(&self, end: &mut Vec<u8>) {
        match end.as_slice() {
            [] => {}
            [0] if !self.0.is_empty() => *end = end_of(&self.0),
            _ => self.put_on(end),
        }
    }

    pub(super) fn take_off(&self, key: &mut Vec<u8>) {
        if key.starts_with(&self.0) {
            key.drain(..self.0.len());
        }
    }

    pub(super) fn range(&self, mut request: RangeRequest) -> RangeRequest {
        self.put_on(&mut request.key);
        self.put_on_end(&mut request.range_end);
        request
    }

    pub(super) fn found(&self, kvs: &mut [KeyValue]) {
        kvs.iter_mut().for_each(|kv| self.take_off(&mut kv.key));
    }

    pub(super) fn txn(&self, mut request: TxnRequest) -> TxnRequest {
        if self.0.is_empty() {
            return request;
        }
        for Compare { key, range_end, .. } in &mut request.compare {
            self.put_on(key);
            self.put_on_end(range_end);
        }
        for RequestOp { request } in request.success.iter_mut().chain(&mut request.failure) {
            match request {
                Some(request_op::Request::RequestRange(range)) => *range = self.range(std::mem::take(range)),
                Some(request_op::Request::RequestPut(put)) => self.put_on(&mut put.key),
                Some(request_op::Request::RequestDeleteRange(delete)) => {
                    self.put_on(&mut delete.key);
                    self.put_on_end(&mut delete.range_end);
                }
                None => {}
            }
        }
        request
    }

    pub(super) fn answered(&self, mut answer: TxnResponse) -> TxnResponse {
        for ResponseOp { response } in &mut answer.responses {
            if let Some(response_op::Response::ResponseRange(range)) = response {
                self.found(&mut range.kvs);
            }
        }
        answer
    }

    pub(super) fn watch(&self, mut request: WatchRequest) -> WatchRequest {
        if let Some(watch_request::RequestUnion::CreateRequest(WatchCreateRequest { key, range_end, .. })) =
            &mut request.request_union
        {
            self.put_on(key);
            self.put_on_end(range_end);
        }
        request
    }

    pub(super) fn told(&self, mut answer: WatchResponse) -> WatchResponse {
        answer.events.iter_mut().filter_map(|event| event.kv.as_mut()).for_each(|kv| self.take_off(&mut kv.key));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_put_on_and_taken_off() {
        let (none, jobs) = (Namespace::default(), Namespace::new("jobs/"));
        let all = RangeRequest { key: b"a/".to_vec(), range_end: b"a0".to_vec(), ..RangeRequest::default() };
        assert_eq!(none.range(all.clone()), all);
        let below = jobs.range(all);
        assert_eq!((below.key.as_slice(), below.range_end.as_slice()), (&b"jobs/a/"[..], &b"jobs/a0"[..]));
        let endless = jobs.range(RangeRequest { key: vec![0], range_end: vec![0], ..RangeRequest::default() });
        assert_eq!(endless.range_end, b"jobs0");
        let mut key = b"jobs/a/1b".to_vec();
        jobs.take_off(&mut key);
        assert_eq!(key, b"a/1b");
    }
}
