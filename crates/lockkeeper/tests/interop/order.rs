//! One queue for both: three of theirs and three of ours, one after the other, are served in order of arrival.

use std::sync::{Arc, Mutex};

use crate::object::Object;
use crate::world::World;

pub(crate) async fn both_are_served_in_order_theirs_first(world: World, object: Object) {
    served_in_order(world, object, 0).await;
}

pub(crate) async fn both_are_served_in_order_ours_first(world: World, object: Object) {
    served_in_order(world, object, 1).await;
}

async fn served_in_order(world: World, object: Object, theirs: usize) {
    let name = object.fresh(&world).await;
    let holder = object.take(&world.client, &name, None).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for place in 0..6 {
        let (client, name, served) = (world.client.clone(), name.clone(), Arc::clone(&served));
        let taking = (place % 2 == theirs).then(|| object.begin(&world.java.thread(&format!("waiter-{place}")), &name, None));
        let waiting = name.clone();
        waiters.push(tokio::spawn(async move {
            // Who has it writes its number down, and only then gives it back: so the list is in order.
            match taking {
                Some(taking) => {
                    let held = taking.taken().await.unwrap();
                    served.lock().unwrap().push(place);
                    held.release().await;
                }
                None => {
                    let held = object.take(&client, &name, None).await;
                    served.lock().unwrap().push(place);
                    held.release().await.unwrap();
                }
            }
        }));
        world.queued(&waiting, place + 1).await;
    }
    holder.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}
