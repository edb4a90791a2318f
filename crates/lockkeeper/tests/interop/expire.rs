//! The dead hold nothing for longer than their lease, and who comes late gives nothing back.

use std::time::{Duration, Instant};

use lockkeeper::ErrorKind;
use redis::Commands as _;

use crate::holder::Holder;
use crate::object::Object;
use crate::world::{World, until};

/// The lease of those who die.
const SHORT: Duration = Duration::from_secs(2);
/// What a loaded machine may add to a lease.
const SLACK: Duration = Duration::from_secs(8);

pub(crate) async fn their_killed_holder_is_gone_with_its_lease(world: World, object: Object) {
    let name = object.fresh(&world).await;
    let (process, java) = world.doomed(SHORT).await;
    // Redisson keeps locks, but not permits.
    let lease = (object == Object::Permit).then_some(SHORT);
    object.theirs(&java.thread("one"), &name, lease).await;
    process.kill();
    let began = Instant::now();
    assert!(object.try_take(&world.client, &name).await.is_none(), "killed, but its lease goes on");
    let ours = object.take(&world.client, &name, None).await;
    assert!(began.elapsed() < SHORT + SLACK, "{:?}", began.elapsed());
    ours.release().await.unwrap();
}

pub(crate) async fn our_killed_holder_is_gone_with_its_lease(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
    let holder = Holder::start(&world.url(), object, &name, SHORT);
    holder.kill();
    let began = Instant::now();
    assert!(object.try_theirs(&java, &name).await.is_none(), "killed, but its lease goes on");
    let theirs = object.theirs(&java, &name, None).await;
    assert!(began.elapsed() < SHORT + SLACK, "{:?}", began.elapsed());
    theirs.release().await;
}

pub(crate) async fn their_late_release_is_refused(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
    let theirs = object.theirs(&java, &name, Some(Duration::from_millis(300))).await;
    let ours = object.take(&world.client, &name, None).await;
    let thrown = theirs.try_release().await.unwrap_err();
    let expected = if object == Object::Permit { "IllegalArgumentException" } else { "IllegalMonitorStateException" };
    assert_eq!(thrown.class, expected, "{thrown:?}");
    assert!(object.is_locked(&java, &name).await, "ours is untouched");
    ours.release().await.expect("ours is untouched");
}

pub(crate) async fn our_late_release_is_refused(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
    let ours = object.take(&world.client, &name, Some(Duration::from_millis(300))).await;
    let theirs = object.theirs(&java, &name, None).await;
    assert_eq!(ours.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(object.try_take(&world.client, &name).await.is_none(), "theirs is untouched");
    theirs.release().await;
}

/// Its field stays in the hash for as long as others read, and counts for nothing.
pub(crate) async fn their_killed_reader_does_not_block_our_writer(world: World, object: Object) {
    let name = object.fresh(&world).await;
    let (process, java) = world.doomed(SHORT).await;
    let dead = java.thread("one");
    object.theirs(&dead, &name, None).await;
    let field = dead.owner().await;
    let living = object.take(&world.client, &name, None).await;
    process.kill();
    let mut eyes = world.eyes();
    let hold = format!("{{{name}}}:{field}:rwlock_timeout:1");
    until("the dead reader's lease ends", || !eyes.exists::<_, bool>(&hold).unwrap()).await;
    assert!(eyes.hexists::<_, _, bool>(&name, &field).unwrap());
    assert!(Object::Write.try_take(&world.client, &name).await.is_none(), "one reader lives");
    living.release().await.unwrap();
    Object::Write.try_take(&world.client, &name).await.expect("free").release().await.unwrap();
}

pub(crate) async fn our_killed_reader_does_not_block_their_writer(world: World, object: Object) {
    let name = object.fresh(&world).await;
    let java = world.java_with(SHORT).await;
    let living = object.theirs(&java.thread("reader"), &name, None).await;
    let holder = Holder::start(&world.url(), object, &name, SHORT);
    let mut eyes = world.eyes();
    let fields: Vec<String> = eyes.hkeys(&name).unwrap();
    assert_eq!(fields.len(), 3, "the mode and two readers: {fields:?}");
    holder.kill();
    // Their watchdog turns several times, and does not keep our dead reader.
    tokio::time::sleep(2 * SHORT).await;
    let holds: Vec<String> = eyes.keys(format!("{{{name}}}:*")).unwrap();
    assert_eq!(holds.len(), 1, "{holds:?}");
    let writer = java.thread("writer");
    assert!(Object::Write.try_theirs(&writer, &name).await.is_none(), "one reader lives");
    living.release().await;
    Object::Write.try_theirs(&writer, &name).await.expect("free").release().await;
}
