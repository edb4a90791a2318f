//! What is traced: the documented spans, with their documented names. Alone in its process: whether a span is made is decided once
//! per process, by whoever traces then.

use std::sync::{Arc, Mutex};

use lockkeeper::Client;
use lockkeeper::runtime::Runtime;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Remembers the names of spans.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<&'static str>>>);

impl Subscriber for Names {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut names = self.0.lock().unwrap();
        names.push(span.metadata().name());
        Id::from_u64(names.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn requests_are_spans() {
    let names = Names::default();
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    tracing::subscriber::set_global_default(names.clone()).unwrap();
    executor.block_on(async {
        let client = Client::builder().runtime(Runtime::simulated()).connect("memory:").await.unwrap();
        client.mutex("m").lock().await.unwrap().release().await.unwrap();
        client.latch("l").count().await.unwrap();
    });
    let names: Vec<_> = names.0.lock().unwrap().iter().filter(|name| name.starts_with("lockkeeper.")).copied().collect();
    assert_eq!(names, ["lockkeeper.acquire", "lockkeeper.release", "lockkeeper.count"]);
}
