//! Held by one, kept from the other; and both tell the truth about who has it.

use lockkeeper::backend::Claim;

use crate::object::Object;
use crate::world::World;

pub(crate) async fn ours_keeps_theirs_out(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
    assert!(!object.is_locked(&java, &name).await);
    let ours = object.take(&world.client, &name, None).await;
    assert!(object.try_theirs(&java, &name).await.is_none());
    assert!(object.is_locked(&java, &name).await);
    if object != Object::Permit {
        assert_eq!(java.ask(format!("{} isHeld {name}", object.word())).await, false);
        let left = java.ask(format!("{} ttl {name}", object.word())).await.as_i64().unwrap();
        assert!((1..=30_000).contains(&left), "{left}");
    }
    assert!(ours.held().is_valid());
    ours.release().await.unwrap();
    assert!(!object.is_locked(&java, &name).await);
    object.try_theirs(&java, &name).await.expect("free").release().await;
}

pub(crate) async fn theirs_keeps_ours_out(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
    let theirs = object.theirs(&java, &name, None).await;
    assert!(object.try_take(&world.client, &name).await.is_none());
    let seen = world.client.inspect(&name).await.unwrap().expect("held");
    assert_eq!(seen.holders.len(), 1, "{seen:?}");
    let owner = match &theirs.permit {
        // Redisson before 3.17 writes the id as text, and we show the bytes.
        Some(id) if seen.holders[0].owner.len() == 64 => id.bytes().map(|byte| format!("{byte:02x}")).collect(),
        Some(id) => id.clone(),
        None => java.owner().await,
    };
    assert_eq!(seen.holders[0].owner, owner);
    theirs.release().await;
    object.try_take(&world.client, &name).await.expect("free").release().await.unwrap();
}

pub(crate) async fn readers_of_both_share_and_keep_writers_out(world: World, object: Object) {
    let (name, reader, writer) = (object.fresh(&world).await, world.java.thread("reader"), world.java.thread("writer"));
    let ours = object.take(&world.client, &name, None).await;
    let theirs = object.try_theirs(&reader, &name).await.expect("readers share");
    let more = object.try_take(&world.client, &name).await.expect("readers share");
    assert!(Object::Write.try_theirs(&writer, &name).await.is_none());
    assert!(Object::Write.try_take(&world.client, &name).await.is_none());
    assert!(object.is_locked(&writer, &name).await && !Object::Write.is_locked(&writer, &name).await);
    let seen = world.client.inspect(&name).await.unwrap().expect("held");
    assert!(seen.holders.len() == 3 && seen.holders.iter().all(|holder| holder.claim == Claim::Read), "{seen:?}");
    ours.release().await.unwrap();
    more.release().await.unwrap();
    assert!(Object::Write.try_take(&world.client, &name).await.is_none(), "theirs still reads");
    let ours = object.take(&world.client, &name, None).await;
    theirs.release().await;
    assert!(Object::Write.try_theirs(&writer, &name).await.is_none(), "ours still reads");
    ours.release().await.unwrap();
    Object::Write.try_theirs(&writer, &name).await.expect("free").release().await;
    Object::Write.try_take(&world.client, &name).await.expect("free").release().await.unwrap();
}
