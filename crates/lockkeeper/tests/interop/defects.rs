//! What cannot hold because of Redisson, as it is: a version that mends one of these fails here, and the page that tells of it is due.

use std::time::{Duration, Instant};

use redis::Commands as _;

use crate::holder::Holder;
use crate::object::Object;
use crate::world::{World, unique, until};

/// A waiter of Java's looks once more when it listens, which leaves no trace.
async fn asleep() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// Every other lock throws. So a Java process may not learn that its fair lock had ended.
pub(crate) async fn an_unlock_of_an_expired_fair_lock_succeeds(world: World) {
    let (name, java) = (unique("fair"), world.java.thread("one"));
    java.ask(format!("fair lock {name} 200")).await;
    let mut eyes = world.eyes();
    until("the lease ends", || !eyes.exists::<_, bool>(&name).unwrap()).await;
    java.ask(format!("fair unlock {name}")).await;
    java.ask(format!("lock lock {name} 200")).await;
    until("the lease ends", || !eyes.exists::<_, bool>(&name).unwrap()).await;
    assert_eq!(java.tell(format!("lock unlock {name}")).thrown().await, "IllegalMonitorStateException");
}

/// A fair waiter listens to a channel of its own, which a plain `RLock` does not publish to: it sleeps until the lease that it was told of
/// ends. A plain `Mutex` of ours does publish to it (`wake::our_plain_release_calls_their_fair_waiter`).
pub(crate) async fn a_plain_unlock_does_not_call_a_fair_waiter(world: World) {
    let (name, holder, lease) = (unique("mixed"), world.java.thread("holder"), Duration::from_secs(4));
    let began = Instant::now();
    Object::Mutex.theirs(&holder, &name, Some(lease)).await;
    let mut waiting = Object::Fair.begin(&world.java.thread("fair"), &name, None);
    world.listeners(&Object::Fair.channels(&name), 1).await;
    asleep().await;
    holder.ask(format!("lock unlock {name}")).await;
    assert!(waiting.told.silent_for(Duration::from_secs(1)).await, "it was called after {:?}", began.elapsed());
    // The end of the lease that it was told of is its clock.
    waiting.taken().await.unwrap().release().await;
    assert!(began.elapsed() < lease + Duration::from_secs(8), "{:?}", began.elapsed());
    // Ours asks by itself within a second.
    let (name, holder) = (unique("mixed"), world.java.thread("holder"));
    let held = Object::Mutex.theirs(&holder, &name, None).await;
    let waiting = tokio::spawn({
        let (client, name) = (world.client.clone(), name.clone());
        async move { Object::Fair.take(&client, &name, None).await }
    });
    world.queued(&name, 1).await;
    held.release().await;
    let began = Instant::now();
    waiting.await.unwrap().release().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// A Java reader sleeps on although the writer only reads by now: until the lease ends that it was told of.
pub(crate) async fn a_downgrade_does_not_call_waiting_readers(world: World) {
    let (name, java) = (unique("rw"), world.java.thread("one"));
    Object::Write.theirs(&java, &name, Some(Duration::from_secs(4))).await;
    let mut waiting = Object::Read.begin(&world.java.thread("reader"), &name, None);
    world.listeners(&Object::Read.channels(&name), 1).await;
    asleep().await;
    let reading = Object::Read.theirs(&java, &name, None).await;
    java.ask(format!("write unlock {name}")).await;
    assert!(waiting.told.silent_for(Duration::from_secs(1)).await, "it was called");
    waiting.taken().await.unwrap().release().await;
    reading.release().await;
}

/// Since 3.19.0 there is one.
pub(crate) async fn there_is_no_fenced_lock(world: World) {
    let java = world.java.thread("one");
    assert_eq!(java.tell(format!("fenced try {}", unique("fenced"))).thrown().await, "UnsupportedOperationException");
}

/// Mended in 3.44.0.
pub(crate) async fn an_unlock_of_an_expired_read_lock_succeeds(world: World) {
    let (name, java) = (unique("rw"), world.java.thread("one"));
    java.ask(format!("read lock {name} 200")).await;
    let mut eyes = world.eyes();
    until("the lease ends", || !eyes.exists::<_, bool>(&name).unwrap()).await;
    java.ask(format!("read unlock {name}")).await;
}

/// Until 3.17.0. Both forms stand side by side in the same set: everybody gives back only its own.
pub(crate) async fn permit_ids_are_text(world: World) {
    let (name, java) = (unique("pool"), world.java.thread("one"));
    assert_eq!(java.ask(format!("permit set {name} 2")).await, true);
    let ours = world.client.semaphore(&name, 2).acquire().await.unwrap();
    let id = java.ask(format!("permit acquire {name} 30000")).await;
    let ids: Vec<Vec<u8>> = world.eyes().zrange(format!("{{{name}}}:timeout"), 0, -1).unwrap();
    let mut lengths: Vec<usize> = ids.iter().map(Vec::len).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [16, 32]);
    java.ask(format!("permit release {name} {}", id.as_str().unwrap())).await;
    ours.release().await.unwrap();
    assert_eq!(java.ask(format!("permit available {name}")).await, 2);
}

/// A waiter that looks again is told how long the lease was to last when it came. When that is over, because the holder renewed it, it waits
/// for a call and has no timer: a holder of either language that is killed then leaves it, and all behind it, waiting. Mended in 3.32.0.
pub(crate) async fn a_fair_waiter_has_no_timer_once_the_lease_was_renewed(world: World) {
    let (name, lease) = (unique("fair"), Duration::from_secs(1));
    let holder = Holder::start(&world.url(), Object::Fair, &name, lease);
    let java = world.java.thread("fair");
    let channel = format!("redisson_lock__channel:{{{name}}}:{}", java.owner().await);
    let mut waiting = Object::Fair.begin(&java, &name, None);
    assert!(waiting.told.silent_for(3 * lease).await, "the holder keeps it");
    holder.kill();
    let mut eyes = world.eyes();
    until("the lease ends", || !eyes.exists::<_, bool>(&name).unwrap()).await;
    assert!(waiting.told.silent_for(3 * lease).await, "nobody called it");
    eyes.publish::<_, _, ()>(&channel, "0").unwrap();
    waiting.taken().await.unwrap().release().await;
}

/// Until 4.3 (seen with 3.16.4 and 3.52.0) the watchdog of a reader renews every reader that it finds in the hash. So a dead one, also one of ours, blocks writers
/// for as long as some Java reader lives, and for one lease more.
pub(crate) async fn a_living_reader_keeps_a_dead_one_alive(world: World) {
    let lease = Duration::from_secs(2);
    let (name, java) = (unique("rw"), world.java_with(lease).await);
    let living = Object::Read.theirs(&java.thread("reader"), &name, None).await;
    let holder = Holder::start(&world.url(), Object::Read, &name, lease);
    holder.kill();
    let mut eyes = world.eyes();
    let began = Instant::now();
    while began.elapsed() < 3 * lease {
        let holds: Vec<String> = eyes.keys(format!("{{{name}}}:*")).unwrap();
        assert_eq!(holds.len(), 2, "{holds:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    living.release().await;
    let ended = Instant::now();
    assert!(Object::Write.try_take(&world.client, &name).await.is_none(), "the dead one still reads");
    Object::Write.take(&world.client, &name, None).await.release().await.unwrap();
    assert!(ended.elapsed() < lease + Duration::from_secs(8), "{:?}", ended.elapsed());
}

/// From 3.44 to 3.52 the renewal of a read hold that was taken twice fails: the hold ends with its first lease, and a writer comes in beside
/// a reader that was told nothing.
pub(crate) async fn a_read_hold_taken_twice_is_not_kept(world: World) {
    let (name, java) = (unique("rw"), world.java_with(Duration::from_secs(2)).await);
    let reader = java.thread("reader");
    Object::Read.theirs(&reader, &name, None).await;
    Object::Read.theirs(&reader, &name, None).await;
    let began = Instant::now();
    let writer = Object::Write.take(&world.client, &name, None).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    writer.release().await.unwrap();
}
