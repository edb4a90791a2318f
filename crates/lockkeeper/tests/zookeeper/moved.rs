//! A session that moved (error -118): what an old connection still sends is refused, and the session with its holds lives on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lockkeeper::ErrorKind;
use lockkeeper_testkit::zookeeper::ZooKeeper;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::site::{self, until};

const SOON: Duration = Duration::from_secs(60);

async fn owner_of(raw: &zookeeper_client::Client, folder: &str) -> i64 {
    let node = site::nodes(raw, folder).await.pop().expect("a node");
    raw.check_stat(&format!("{folder}/{node}")).await.unwrap().expect("there").ephemeral_owner
}

/// Our session is continued at another server, as it is after a change of networks, while our connection to the first one is still open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_moved_to_another_server_keeps_its_holds_and_makes_no_node_twice() {
    if ZooKeeper::missing().is_some() {
        let _ = site::server("moved");
        return;
    }
    let servers = tokio::task::spawn_blocking(ZooKeeper::ensemble).await.unwrap();
    let (ports, folder) = (servers.ports(), site::fresh_folder(&servers).await);
    let leader = servers.leader().expect("a leader");
    let (first, second) = ((leader + 1) % 3, (leader + 2) % 3);
    let ours = site::client(&format!("zookeeper://127.0.0.1:{}/{folder}?session=20s", ports[first])).await;
    let rival = site::client(&format!("zookeeper://{}/{folder}?session=20s", servers.hosts())).await;
    let raw = site::raw(&servers).await;
    let held = ours.mutex("held").lock().await.unwrap();
    until("the node is seen", async || site::nodes(&raw, &format!("/{folder}/held")).await.len() == 1).await;
    let session = owner_of(&raw, &format!("/{folder}/held")).await;
    for round in 0..3 {
        let port = ports[second];
        let other = tokio::task::spawn_blocking(move || site::take_over(port, session)).await.unwrap();
        let (name, began) = (format!("m{round}"), tokio::time::Instant::now());
        let guard = timeout(SOON, ours.mutex(&name).lock()).await.expect("in time").unwrap();
        println!("round {round}: locked {:?} after the session moved", began.elapsed());
        let path = format!("/{folder}/{name}");
        until("one node is there", async || site::nodes(&raw, &path).await.len() == 1).await;
        assert_eq!(owner_of(&raw, &path).await, session, "the session was taken back, not replaced");
        assert!(held.is_valid() && guard.is_valid());
        assert!(rival.mutex(&name).try_lock().await.unwrap().is_none());
        assert!(rival.mutex("held").try_lock().await.unwrap().is_none());
        guard.release().await.unwrap();
        until("nothing is left", async || site::nodes(&raw, &path).await.is_empty()).await;
        drop(other);
    }
    assert_eq!(owner_of(&raw, &format!("/{folder}/held")).await, session);
    held.release().await.unwrap();
}

/// Passes on what a client and a server say, but answers creations with error -118 while it is told to, as a server does for a session that moved.
async fn refuse_creations(
    mut client: TcpStream,
    port: u16,
    moved: Arc<AtomicBool>,
    refused: Arc<AtomicU32>,
) -> std::io::Result<()> {
    const CREATIONS: [i32; 4] = [1, 15, 19, 14];
    let server = TcpStream::connect(("127.0.0.1", port)).await?;
    let (mut answers, mut requests) = server.into_split();
    let (mut from, to) = client.split();
    let to = tokio::sync::Mutex::new(to);
    let there = async {
        for number in 0_u64.. {
            let length = from.read_u32().await?;
            let mut body = vec![0; length as usize];
            from.read_exact(&mut body).await?;
            let word = |at: usize| i32::from_be_bytes(body[at..at + 4].try_into().expect("four bytes"));
            // The first message opens the session.
            if number > 0 && moved.load(Ordering::SeqCst) && CREATIONS.contains(&word(4)) {
                let answer = [&16_i32.to_be_bytes()[..], &word(0).to_be_bytes(), &0_i64.to_be_bytes(), &(-118_i32).to_be_bytes()];
                refused.fetch_add(1, Ordering::SeqCst);
                to.lock().await.write_all(&answer.concat()).await?;
                continue;
            }
            requests.write_all(&[&length.to_be_bytes()[..], &body].concat()).await?;
        }
        std::io::Result::Ok(())
    };
    let back = async {
        loop {
            let length = answers.read_u32().await?;
            let mut body = vec![0; length as usize];
            answers.read_exact(&mut body).await?;
            to.lock().await.write_all(&[&length.to_be_bytes()[..], &body].concat()).await?;
        }
    };
    tokio::select! { ended = there => ended, ended = back => ended }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_that_a_session_has_moved_is_typed_and_in_words() {
    let Some(server) = site::server("moved") else { return };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, behind) = (listener.local_addr().unwrap().port(), server.ports()[0]);
    let (moved, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let relay = tokio::spawn({
        let (moved, refused) = (Arc::clone(&moved), Arc::clone(&refused));
        async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(refuse_creations(client, behind, Arc::clone(&moved), Arc::clone(&refused)));
            }
        }
    });
    let (raw, folder) = (site::raw(&server).await, site::fresh_folder(&server).await);
    let ours = site::client(&format!("zookeeper://127.0.0.1:{port}/{folder}?session=20s")).await;
    let held = ours.mutex("held").lock().await.unwrap();
    moved.store(true, Ordering::SeqCst);
    for error in [
        ours.mutex("m").try_lock().await.unwrap_err(),
        ours.rwlock("w").try_write().await.unwrap_err(),
        ours.semaphore("s", 1).try_acquire().await.unwrap_err(),
    ] {
        println!("{error}");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(error.to_string().contains("moved to another connection"), "{error}");
    }
    assert!(refused.load(Ordering::SeqCst) >= 3);
    // The session lives, and so do its holds; nothing was made.
    assert!(held.is_valid());
    for path in ["m", "w", "s/locks", "s/leases"] {
        assert_eq!(site::nodes(&raw, &format!("/{folder}/{path}")).await, Vec::<String>::new(), "{path}");
    }
    // A waiter goes on by itself when it is over.
    let waiting = tokio::spawn({
        let mutex = ours.mutex("m");
        async move { mutex.lock().timeout(SOON).await }
    });
    let before = refused.load(Ordering::SeqCst);
    until("the waiter was refused, too", async || refused.load(Ordering::SeqCst) > before).await;
    moved.store(false, Ordering::SeqCst);
    timeout(SOON, waiting).await.expect("in time").unwrap().expect("locked").release().await.unwrap();
    held.release().await.unwrap();
    relay.abort();
}
