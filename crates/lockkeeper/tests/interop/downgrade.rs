//! From writing to reading, with no writer in between.

use std::time::{Duration, Instant};

use crate::object::{Object, Ours};
use crate::wake::at_once;
use crate::world::World;

pub(crate) async fn ours_lets_their_readers_in(world: World, object: Object) {
    let mut took = Vec::new();
    for _ in 0..5 {
        let name = object.fresh(&world).await;
        let (reader, writer) = (world.java.thread("reader"), world.java.thread("writer"));
        let Ours::Write(ours) = Object::Write.take(&world.client, &name, None).await else { unreachable!("a writer") };
        let waiting = object.begin(&reader, &name, None);
        world.listeners(&object.channels(&name), 1).await;
        let began = Instant::now();
        let ours = world.client.rwlock(&name).downgrade(ours).await.unwrap();
        let theirs = waiting.taken().await.unwrap();
        took.push(began.elapsed());
        assert!(Object::Write.try_theirs(&writer, &name).await.is_none(), "both read");
        theirs.release().await;
        assert!(Object::Write.try_theirs(&writer, &name).await.is_none(), "ours reads");
        ours.release().await.unwrap();
        Object::Write.try_theirs(&writer, &name).await.expect("free").release().await;
    }
    at_once(took);
}

/// Redisson calls nobody when it downgrades (see `defects::a_downgrade_does_not_call_waiting_readers`); ours ask by themselves.
pub(crate) async fn theirs_lets_our_readers_in(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
    let writing = Object::Write.theirs(&java, &name, None).await;
    let waiting = tokio::spawn({
        let (client, name) = (world.client.clone(), name.clone());
        async move { object.take(&client, &name, None).await }
    });
    world.listeners(&object.channels(&name), 1).await;
    let reading = object.theirs(&java, &name, None).await;
    writing.release().await;
    let began = Instant::now();
    let ours = waiting.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(Object::Write.try_take(&world.client, &name).await.is_none(), "both read");
    ours.release().await.unwrap();
    assert!(Object::Write.try_take(&world.client, &name).await.is_none(), "theirs reads");
    reading.release().await;
    Object::Write.try_take(&world.client, &name).await.expect("free").release().await.unwrap();
}
