//! Names with braces and letters of all kinds: both sides make the same keys and channels of them.

use crate::object::Object;
use crate::wake::at_once;
use crate::world::{World, unique};

/// A whole tag, one in the middle, one that never ends, none, and letters that are no ASCII.
pub(crate) const NAMES: [&str; 5] = ["{order}:7", "a{b}c", "half{open", "}wrong{", "Schlüssel:鍵:🔑"];

pub(crate) async fn braces_and_letters_mean_the_same(world: World, object: Object) {
    let mut took = Vec::new();
    for name in NAMES {
        let name = object.named(&world, &unique(name)).await;
        let java = world.java.thread("one");
        let ours = object.take(&world.client, &name, None).await;
        assert!(object.try_theirs(&java, &name).await.is_none(), "{name}");
        let waiting = object.begin(&java, &name, None);
        world.listeners(&object.channels(&name), 1).await;
        let began = std::time::Instant::now();
        ours.release().await.unwrap();
        let theirs = waiting.taken().await.unwrap();
        took.push(began.elapsed());
        let waiting = tokio::spawn({
            let (client, name) = (world.client.clone(), name.clone());
            async move { object.take(&client, &name, None).await }
        });
        world.listeners(&object.channels(&name), 1).await;
        let began = std::time::Instant::now();
        theirs.release().await;
        let ours = waiting.await.unwrap();
        took.push(began.elapsed());
        ours.release().await.unwrap();
    }
    at_once(took);
}
