//! Mixed traffic: nothing is lost, and the numbers agree.

use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::object::Object;
use crate::world::{Java, World, unique};

/// A number in a file that nothing protects but the lock: 8 bytes, as Java's `readLong` takes them.
struct Counter(PathBuf);

impl Counter {
    fn new() -> Self {
        let place = std::env::temp_dir().join(format!("lockkeeper-interop-{}-{}", std::process::id(), unique("counter")));
        std::fs::write(&place, 0_u64.to_be_bytes()).expect("a file to count in");
        Self(place)
    }

    fn add_one(&self) {
        let file = std::fs::File::options().read(true).write(true).open(&self.0).expect("the file");
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0).expect("a number");
        file.write_all_at(&(u64::from_be_bytes(bytes) + 1).to_be_bytes(), 0).expect("room for a number");
    }

    fn value(&self) -> u64 {
        u64::from_be_bytes(std::fs::read(&self.0).expect("the file").try_into().expect("8 bytes"))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) async fn ten_thousand_additions_of_both_are_all_there(world: World, object: Object) {
    additions(world, object, 1250).await;
}

pub(crate) async fn a_thousand_additions_of_both_are_all_there(world: World, object: Object) {
    additions(world, object, 125).await;
}

/// Four threads of Java's and four tasks of ours, each that many times.
async fn additions(world: World, object: Object, turns: u64) {
    let name = object.fresh(&world).await;
    let counter = std::sync::Arc::new(Counter::new());
    let theirs = java_counts(&world.java, object.word(), &name, turns, &counter);
    let ours: Vec<_> = (0..4)
        .map(|_| {
            let (client, name, counter) = (world.client.clone(), name.clone(), std::sync::Arc::clone(&counter));
            tokio::spawn(async move {
                for _ in 0..turns {
                    let held = object.take(&client, &name, None).await;
                    counter.add_one();
                    held.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in ours {
        task.await.unwrap();
    }
    for told in theirs {
        told.value().await;
    }
    assert_eq!(counter.value(), 8 * turns);
    lost_without_a_lock(&world.java).await;
}

fn java_counts(java: &Java, word: &str, name: &str, turns: u64, counter: &Counter) -> Vec<crate::driver::Told> {
    let file = counter.0.display();
    (0..4).map(|thread| java.thread(&format!("count-{thread}")).tell(format!("{word} count {name} {turns} {file}"))).collect()
}

/// The control: the same without a lock loses additions, so that the test above could fail.
async fn lost_without_a_lock(java: &Java) {
    let began = Instant::now();
    loop {
        let (counter, turns) = (Counter::new(), 2000);
        let theirs = java_counts(java, "none", "none", turns, &counter);
        for told in theirs {
            told.value().await;
        }
        if counter.value() < 4 * turns {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "without a lock nothing gets lost: the counter shows nothing");
    }
}

pub(crate) async fn permits_agree_after_mixed_traffic(world: World, _: Object) {
    let name = unique("pool");
    let java = world.java.thread("main");
    assert_eq!(java.ask(format!("permit set {name} 5")).await, true);
    let semaphore = world.client.semaphore(&name, 5);
    assert_eq!(semaphore.available().await.unwrap(), 5, "Java made it, and nobody used it yet");
    let ours: Vec<_> = (0..4)
        .map(|_| {
            let semaphore = semaphore.clone();
            tokio::spawn(async move {
                for turn in 0..50 {
                    semaphore.acquire_many(1 + turn % 3).timeout(Duration::from_secs(40)).await.unwrap().release().await.unwrap();
                }
            })
        })
        .collect();
    let theirs: Vec<_> = (0..4)
        .map(|thread| {
            let (thread, name) = (world.java.thread(&format!("t{thread}")), name.clone());
            tokio::spawn(async move {
                for _ in 0..50 {
                    let id = thread.ask(format!("permit acquire {name} 30000")).await;
                    thread.ask(format!("permit release {name} {}", id.as_str().unwrap())).await;
                }
            })
        })
        .collect();
    for task in ours.into_iter().chain(theirs) {
        task.await.unwrap();
    }
    assert_eq!(java.ask(format!("permit available {name}")).await, 5);
    assert_eq!(semaphore.available().await.unwrap(), 5);
    let two = semaphore.acquire_many(2).await.unwrap();
    let id = java.ask(format!("permit acquire {name} 30000")).await;
    assert_eq!(java.ask(format!("permit available {name}")).await, 2);
    assert_eq!(semaphore.available().await.unwrap(), 2);
    two.release().await.unwrap();
    java.ask(format!("permit release {name} {}", id.as_str().unwrap())).await;
    assert_eq!(semaphore.available().await.unwrap(), 5);
}
