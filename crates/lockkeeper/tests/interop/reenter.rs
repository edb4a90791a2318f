//! Who holds it several times gives it back several times, whatever the other side does meanwhile.

use std::time::Duration;

use lockkeeper::ErrorKind;

use crate::object::{Object, Ours};
use crate::world::World;

pub(crate) async fn their_hold_count_survives_our_traffic(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
    let word = object.word();
    for count in 1..=3 {
        java.ask(format!("{word} lock {name} -1")).await;
        assert_eq!(java.ask(format!("{word} holdCount {name}")).await, count);
    }
    // A reader meets only writers.
    let other = if object == Object::Read { Object::Write } else { object };
    for left in [2, 1, 0] {
        assert!(other.try_take(&world.client, &name).await.is_none());
        let waited = other.take_within(&world.client, &name, None, Duration::from_millis(50)).await;
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::Timeout);
        if object == Object::Read {
            object.take(&world.client, &name, None).await.release().await.unwrap();
        }
        assert_eq!(world.client.inspect(&name).await.unwrap().expect("held").holders.len(), 1);
        assert_eq!(java.ask(format!("{word} holdCount {name}")).await, left + 1);
        java.ask(format!("{word} unlock {name}")).await;
        assert_eq!(java.ask(format!("{word} holdCount {name}")).await, left);
    }
    // The places of the calls that gave up are removed in the background.
    other.take_within(&world.client, &name, None, Duration::from_secs(2)).await.expect("free").release().await.unwrap();
}

pub(crate) async fn ours_is_held_until_the_last_release(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
    let first = object.take(&world.client, &name, None).await;
    let again = |guard: &Ours| match guard {
        Ours::Mutex(guard) => Ours::Mutex(guard.reenter().unwrap()),
        Ours::Write(guard) => Ours::Write(guard.reenter().unwrap()),
        Ours::Read(guard) => Ours::Read(guard.reenter().unwrap()),
        Ours::Permit(_) => unreachable!("permits are not re-entered"),
    };
    let guards = [again(&first), again(&first), first];
    for guard in guards {
        assert!(object.is_locked(&java, &name).await);
        assert!(object.try_theirs(&java, &name).await.is_none());
        guard.release().await.unwrap();
    }
    assert!(!object.is_locked(&java, &name).await);
    object.try_theirs(&java, &name).await.expect("free").release().await;
}
