//! Servers that fail or refuse: members killed, a leader lost, revisions compacted, no quorum, users refused, names that mean something else.

use std::time::Duration;

use lockkeeper::backend::Verdict;
use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::poll::async_until_within;

use crate::bench::{LONG, client, fresh, own, shared};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_and_restarts_knows_its_locks() {
    let Some(mut server) = own("a restarted server", 1, &[]) else { return };
    let url = format!("etcd://{}?session=20s", server.hosts());
    let (ours, theirs) = (client(&url).await, client(&url).await);
    let guard = ours.mutex("m").lock().await.unwrap();
    let before = guard.token().unwrap();
    let waiting = tokio::spawn(async move { theirs.mutex("m").lock().await });
    async_until_within(LONG, "the other one waits", || async { server.keys("m/").len() == 2 }).await;
    server.kill(0);
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.start_again(0);
    assert!(server.answers());
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    let next = tokio::time::timeout(LONG, waiting).await.expect("woken").unwrap().unwrap();
    assert!(next.token().unwrap() > before);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn three_members_lose_their_leader_and_no_lock() {
    let Some(mut server) = own("a killed follower and a killed leader", 3, &[]) else { return };
    let url = format!("etcd://{}?session=20s", server.hosts());
    let (ours, theirs) = (client(&url).await, client(&url).await);
    let guard = ours.mutex("m").lock().await.unwrap();
    let waiting = tokio::spawn(async move { theirs.mutex("m").lock().await });
    async_until_within(LONG, "the other one waits", || async { server.keys("m/").len() == 2 }).await;
    let leader = server.leader();
    let follower = (leader + 1) % 3;
    server.kill(follower);
    let other = ours.mutex("other").lock().timeout(LONG).await.expect("two of three are a majority");
    assert!(guard.is_valid() && !waiting.is_finished());
    // It comes back with its data, and learns what happened meanwhile.
    server.start_again(follower);
    assert!(server.answers(), "{}", server.log(follower));
    let there = client(&format!("etcd://127.0.0.1:{}?session=20s", server.port(follower))).await;
    for name in ["m", "other"] {
        assert!(there.mutex(name).try_lock().await.unwrap().is_none(), "{name} is held");
    }
    other.release().await.unwrap();
    assert!(there.mutex("other").try_lock().await.unwrap().is_some());
    drop(there);
    // Its vote is needed from now on.
    server.kill(leader);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    tokio::time::timeout(LONG, waiting).await.expect("woken").unwrap().unwrap().release().await.unwrap();
    // Without a majority nothing is granted, and that is said.
    server.kill(follower);
    let error = ours.mutex("third").lock().timeout(Duration::from_secs(4)).await.unwrap_err();
    assert!(error.is_outage() || error.is_busy(), "{error:?}");
    let error = Client::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_disturbs_no_waiter() {
    let Some(server) = own("a compaction", 1, &[]) else { return };
    let (ours, theirs) = (client(&server.url()).await, client(&server.url()).await);
    let guard = ours.mutex("m").lock().await.unwrap();
    let waiting = tokio::spawn(async move { theirs.mutex("m").lock().await });
    async_until_within(LONG, "the other one waits", || async { server.keys("m/").len() == 2 }).await;
    for number in 0..20 {
        assert!(server.ctl(&["put", "x", &number.to_string()]).status.success());
    }
    let status = String::from_utf8(server.ctl(&["get", "x", "-w", "fields"]).stdout).unwrap();
    let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" :")).unwrap().trim().to_owned();
    assert!(server.ctl(&["compact", &revision]).status.success());
    guard.release().await.unwrap();
    tokio::time::timeout(LONG, waiting).await.expect("woken").unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_waiters_are_all_served_and_cancelled_ones_leave_no_key() {
    let Some(server) = shared("many waiters") else { return };
    let (client, name) = (client(&format!("etcd://{}?session=20s", server.hosts())).await, fresh("many"));
    let guard = client.mutex(&name).lock().await.unwrap();
    let wait = |limit: Duration| {
        let mutex = client.mutex(&name);
        tokio::spawn(async move { mutex.lock().timeout(limit).await.map(drop) })
    };
    let gives_up: Vec<_> = (0..250).map(|_| wait(Duration::from_secs(6))).collect();
    let stays: Vec<_> = (0..250).map(|_| wait(Duration::from_secs(200))).collect();
    for waiter in gives_up {
        assert!(waiter.await.unwrap().is_err_and(|error| error.is_busy()));
    }
    guard.release().await.unwrap();
    for waiter in stays {
        waiter.await.unwrap().unwrap();
    }
    async_until_within(LONG, "no key is left", || async { server.keys(&format!("{name}/")).is_empty() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_mean_something_else_are_refused() {
    let Some(server) = shared("odd names") else { return };
    let client = client(&server.url()).await;
    for name in ["a/b", "__lockkeeper", "/"] {
        let error = client.mutex(name).lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{name}: {error}");
    }
    let allowed = Client::connect(format!("{}&slashes=allow", server.url())).await.unwrap();
    allowed.mutex(fresh("a/b")).lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_is_refused_and_a_right_that_is_missing_are_named() {
    let Some(server) = own("users", 1, &[]) else { return };
    for arguments in [
        &["user", "add", "root:r"][..],
        &["user", "add", "ann:a"],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "locks"],
        &["role", "grant-permission", "locks", "readwrite", "job", "--prefix"],
        &["role", "grant-permission", "locks", "readwrite", "__lockkeeper/", "--prefix"],
        &["user", "grant-role", "ann", "locks"],
        &["auth", "enable"],
    ] {
        let done = server.ctl(arguments);
        // The role root exists in newer servers already.
        assert!(done.status.success() || arguments[0] == "role", "{arguments:?}: {done:?}");
    }
    let at = |user: &str| format!("etcd://{user}{}?session=2s", server.hosts());
    for user in ["", "ann:wrong@", "bob:b@"] {
        let error = Client::connect(at(user)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{user}: {error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
    let ann = client(&at("ann:a@")).await;
    ann.mutex("job1").lock().await.unwrap().release().await.unwrap();
    let error = ann.mutex("other").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_tells_which_names_a_user_may_use() {
    let Some(server) = own("rights", 1, &[]) else { return };
    for arguments in [
        &["user", "add", "root:r"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "app"],
        &["role", "grant-permission", "app", "readwrite", "app/", "--prefix"],
        &["role", "add", "looks"],
        &["role", "grant-permission", "looks", "read", "app/", "--prefix"],
        &["user", "add", "ann:a"],
        &["user", "grant-role", "ann", "app"],
        &["user", "add", "bob:b"],
        &["user", "grant-role", "bob", "looks"],
        &["put", "app/__lockkeeper/identity", "x"],
        &["put", "app/kept", "y"],
        &["role", "add", "part"],
        &["role", "grant-permission", "part", "readwrite", "app/__lockkeeper/", "--prefix"],
        &["role", "grant-permission", "part", "readwrite", "app/job", "--prefix"],
        &["user", "add", "cat:c"],
        &["user", "grant-role", "cat", "part"],
        &["auth", "enable"],
    ] {
        let done = server.ctl(arguments);
        assert!(done.status.success(), "{arguments:?}: {done:?}");
    }
    let rights = async |user: &str| {
        let found = Client::examine(format!("etcd://{user}@{}?session=2s&prefix=app/", server.hosts())).await.unwrap();
        let finding = found.findings.into_iter().find(|finding| finding.about == "rights").expect("rights are told");
        println!("{user}: {finding:?}");
        finding
    };
    let ann = rights("ann:a").await;
    assert_eq!(ann.verdict, Verdict::Fine, "{ann:?}");
    let cat = rights("cat:c").await;
    assert!(cat.verdict == Verdict::Doubtful && cat.says.contains("app/"), "{cat:?}");
    let bob = rights("bob:b").await;
    assert!(bob.verdict == Verdict::Unfit(ErrorKind::Denied) && bob.says.contains("app/__lockkeeper/"), "{bob:?}");
    // The question has changed nothing, also where it was allowed.
    let kept = server.ctl(&["--user", "root:r", "get", "app/kept", "--print-value-only"]);
    assert_eq!(String::from_utf8_lossy(&kept.stdout).trim(), "y", "{kept:?}");
    assert_eq!(rights("root:r").await.verdict, Verdict::Fine);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_etcd_is_refused_in_words() {
    let answers =
        ["-ERR unknown command\r\n", "HTTP/1.1 400 Bad Request\r\nServer: example\r\n\r\n", "220 mail.example ESMTP ready\r\n"];
    for (answer, kind) in answers.into_iter().zip([ErrorKind::Config, ErrorKind::Unavailable, ErrorKind::Config]) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let other = tokio::spawn(async move {
            use tokio::io::AsyncWriteExt as _;
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let error = Client::connect(&format!("etcd://127.0.0.1:{port}")).await.unwrap_err();
        println!("{error}");
        assert_eq!(error.kind(), kind, "{error:?}");
        let (says, first) = (error.to_string(), answer.lines().next().unwrap());
        assert!(says.contains(&format!("127.0.0.1:{port} is no etcd server: it says {first:?}")), "{error}");
        assert!(says.contains("correct the host and the port"), "{error}");
        other.abort();
    }
    let error = Client::connect("etcd://127.0.0.1:1").await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("127.0.0.1:1"), "{error}");
    let Some(server) = shared("TLS to a server without it") else { return };
    let authority = server.directory().join("ca.pem");
    std::fs::write(&authority, "no certificate").unwrap();
    let error = Client::connect(format!("etcds://{}?ca={}", server.hosts(), authority.display())).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Config), "{error:?}");
    assert_eq!(Client::connect(format!("etcds://{}", server.hosts())).await.unwrap_err().kind(), ErrorKind::Config);
}
