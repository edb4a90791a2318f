//! A disk that is full: a typed error in words, what is held stays held, and requests work again when there is room.

use lockkeeper::ErrorKind;
use lockkeeper::name::Name;

use super::bench::{FullDisk, ask, is_granted, release};

/// So many names with long names fill all pages that a table has.
const NAMES: u64 = 5_000;

fn long_name(number: u64) -> String {
    format!("{number:0>400}")
}

#[tokio::test]
async fn a_full_disk_is_told_and_costs_no_lock() {
    let Some(bench) = FullDisk::open("a full disk").await else { return };
    let (store, runtime) = (&bench.store, &bench.runtime);
    assert!(is_granted(store.acquire(ask(runtime, "held", 1)).await.unwrap()));
    bench.disk.fill();
    let mut granted = 0;
    let error = loop {
        match store.acquire(ask(runtime, &long_name(granted), 1)).await {
            Ok(attempt) => assert!(is_granted(attempt)),
            Err(error) => break error,
        }
        granted += 1;
        assert!(granted < NAMES, "{granted} rows were written to a full disk");
    };
    println!("{granted} rows, then: {error}");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("cannot do it now"), "{error}");
    let held = store.inspect(Name::new("held").unwrap()).await.unwrap();
    assert!(held.is_some(), "the hold is still there");
    bench.disk.empty();
    assert!(is_granted(store.acquire(ask(runtime, &long_name(granted), 1)).await.unwrap()), "there is room again");
    assert!(store.release(release("held", 1)).await.unwrap().held);
}
