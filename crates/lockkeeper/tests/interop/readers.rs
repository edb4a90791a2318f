//! Readers of both sides while a writer of ours waits. Java's readers do not yield to it, and keep it out until they leave a gap.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::object::Object;
use crate::world::{World, unique};

/// How many of each side. With so many Java hardly ever leaves a gap.
const READERS: usize = 8;
const HOLD: Duration = Duration::from_millis(100);
/// For how long Java reads without a gap.
const JAVA_READS: Duration = Duration::from_secs(6);
/// Ours go on for longer: they let the writer in once Java is gone.
const WE_READ: Duration = Duration::from_secs(10);

async fn readers_and_a_writer(world: Arc<World>) -> Result<(), String> {
    let name = unique("readers");
    let (hold, time) = (HOLD.as_millis(), JAVA_READS.as_millis());
    let mut theirs = Vec::new();
    for thread in 0..READERS {
        theirs.push(world.java.thread(&unique("reader")).tell(format!("read contend {name} {hold} {time} 0")));
        // Not all at once: one of them reads at any time.
        tokio::time::sleep(HOLD / READERS as u32 * u32::from(thread > 0)).await;
    }
    let began = Instant::now();
    let ours: Vec<_> = (0..READERS).map(|_| tokio::spawn(read(Arc::clone(&world), name.clone(), began))).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let writer = tokio::spawn({
        let lock = world.client.rwlock(&name);
        async move {
            let mut writes = 0;
            // When it came in for the last time: its last wait begins while Java reads.
            while began.elapsed() < JAVA_READS {
                let guard = lock.write().timeout(WE_READ * 2).await.map_err(|error| error.to_string())?;
                writes += 1;
                guard.release().await.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>((writes, began.elapsed()))
        }
    });
    let mut of_java = 0_u64;
    for told in theirs {
        let answer = told.value().await;
        let grants = answer.as_str().and_then(|text| text.split(' ').next()).and_then(|number| number.parse::<u64>().ok());
        of_java += grants.ok_or_else(|| format!("{answer}"))?;
    }
    let java_left = began.elapsed();
    let mut of_ours = 0_u64;
    for task in ours {
        of_ours += task.await.map_err(|panic| panic.to_string())?;
    }
    let (writes, wrote) = writer.await.map_err(|panic| panic.to_string())??;
    let found = format!(
        "{:?}: {of_ours} reads of ours, {of_java} of theirs, {writes} writes, the last after {wrote:?}; Java left after {java_left:?}",
        world.version
    );
    eprintln!("{found}");
    // Both sides have as many readers: half of our share is a quarter of all.
    if 3 * of_ours < of_java {
        return Err(format!("too few of ours: {found}"));
    }
    if wrote > java_left + Duration::from_secs(2) {
        return Err(format!("the writer did not come in: {found}"));
    }
    Ok(())
}

/// How often one reader of ours read while Java did.
async fn read(world: Arc<World>, name: String, began: Instant) -> u64 {
    let mut reads = 0;
    while began.elapsed() < WE_READ {
        let held = Object::Read.take(&world.client, &name, None).await;
        tokio::time::sleep(HOLD).await;
        reads += u64::from(began.elapsed() < JAVA_READS);
        held.release().await.expect("it is held");
    }
    reads
}

/// With all versions side by side; what fails on a busy machine may try twice more.
pub(crate) async fn a_waiting_writer_costs_our_readers_no_more_than_half_of_their_share(worlds: Vec<Arc<World>>) {
    let mut wrong = Vec::new();
    for _ in 0..3 {
        let running: Vec<_> = worlds.iter().map(|world| tokio::spawn(readers_and_a_writer(Arc::clone(world)))).collect();
        wrong.clear();
        for run in running {
            wrong.extend(run.await.expect("no panic").err());
        }
        if wrong.is_empty() {
            return;
        }
        eprintln!("once more: {wrong:?}");
    }
    panic!("{}", wrong.join("\n"));
}
