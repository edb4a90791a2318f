//! What `doctor` says of users, ACLs and servers that only read.

use lockkeeper::backend::{Finding, Verdict};
use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::zookeeper::ZooKeeper;
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use crate::site::{self, until};

async fn findings(url: &str) -> Vec<Finding> {
    let found = Client::examine(url).await.unwrap().findings;
    found.iter().for_each(|finding| println!("{finding:?}"));
    found
}

fn about<'a>(found: &'a [Finding], what: &str) -> &'a Finding {
    found.iter().find(|finding| finding.about == what).unwrap_or_else(|| panic!("nothing about {what}: {found:?}"))
}

#[tokio::test]
async fn doctor_tells_who_we_are_and_who_may_change_what() {
    let Some(server) = site::server("rights") else { return };
    let folder = site::fresh_folder(&server).await;
    let url = |user: &str, options: &str| format!("zookeeper://{user}{}/{folder}?session=4s{options}", server.hosts());
    // Nobody in particular: all is open, and that is what was asked for.
    let found = findings(&url("", "")).await;
    for what in ["user", "acl", "folder rights"] {
        assert_eq!(about(&found, what).verdict, Verdict::Fine, "{found:?}");
    }
    assert!(about(&found, "folder rights").says.contains("world:anyone"), "{found:?}");
    // A user whose nodes are open to everybody.
    let found = findings(&url("ann:secret@", "")).await;
    assert!(about(&found, "user").says.contains("digest:ann"), "{found:?}");
    assert!(about(&found, "acl").verdict == Verdict::Doubtful && about(&found, "acl").says.contains("acl=creator"), "{found:?}");
    // A user with nodes of its own, in a folder that everybody may change.
    let found = findings(&url("ann:secret@", "&acl=creator")).await;
    assert_eq!(about(&found, "acl").verdict, Verdict::Fine, "{found:?}");
    assert_eq!(about(&found, "folder rights").verdict, Verdict::Doubtful, "{found:?}");
    assert!(about(&found, "folder rights").says.contains(&format!("setAcl /{folder}")), "{found:?}");
    // Neither the password nor what is made of it is shown.
    assert!(found.iter().all(|finding| !finding.says.contains("secret") && !finding.says.contains("ann:")), "{found:?}");
}

#[tokio::test]
async fn doctor_tells_how_far_the_clock_is_and_that_a_session_is_shorter_than_asked_for() {
    let Some(server) = site::server("clock and session") else { return };
    let folder = site::fresh_folder(&server).await;
    let url = |session: &str| format!("zookeeper://{}/{folder}?session={session}", server.hosts());
    let found = findings(&url("4s")).await;
    // It is the clock of this machine.
    let clock = about(&found, "clock");
    assert!(clock.verdict == Verdict::Fine && clock.says.starts_with("the server's clock differs by "), "{found:?}");
    let session = about(&found, "session");
    assert!(session.verdict == Verdict::Fine && session.says.contains("keeps a session for 4s"), "{found:?}");
    // The server of the tests allows a minute at most.
    let found = findings(&url("120s")).await;
    let session = about(&found, "session");
    assert_eq!(session.verdict, Verdict::Doubtful, "{found:?}");
    for says in ["keeps a session for 60s", "valid for 45s", "120s were asked for", "maxSessionTimeout"] {
        assert!(session.says.contains(says), "{says}: {session:?}");
    }
}

#[tokio::test]
async fn doctor_finds_nothing_wrong_with_a_folder_of_the_users_own() {
    let Some(server) = site::server("rights") else { return };
    let raw = site::raw(&server).await;
    raw.auth("digest", b"ann:secret").await.unwrap();
    let folder = format!("/{}", server.fresh_folder());
    raw.create(&folder, &[], &CreateMode::Persistent.with_acls(Acls::creator_all())).await.unwrap();
    let found = findings(&format!("zookeeper://ann:secret@{}{folder}?session=4s&acl=creator", server.hosts())).await;
    for what in ["user", "acl", "folder", "folder rights"] {
        assert_eq!(about(&found, what).verdict, Verdict::Fine, "{found:?}");
    }
    // Another user may not use it, and is told so.
    let found = findings(&format!("zookeeper://bob:other@{}{folder}?session=4s&acl=creator", server.hosts())).await;
    assert_eq!(about(&found, "folder").verdict, Verdict::Unfit(ErrorKind::Denied), "{found:?}");
    // Everybody may read: that changes nothing.
    let folder = format!("/{}", server.fresh_folder());
    let acls = [Acl::new(Permission::ALL, AuthId::authed()), Acl::new(Permission::READ, AuthId::anyone())];
    raw.create(&folder, &[], &CreateMode::Persistent.with_acls(Acls::new(&acls))).await.unwrap();
    let found = findings(&format!("zookeeper://ann:secret@{}{folder}?session=4s&acl=creator", server.hosts())).await;
    assert_eq!(about(&found, "folder rights").verdict, Verdict::Fine, "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_tells_of_a_server_that_only_reads() {
    if ZooKeeper::missing().is_some() {
        let _ = site::server("read-only");
        return;
    }
    let start = || ZooKeeper::ensemble_with(&["-Dreadonlymode.enabled=true"]);
    let mut servers = tokio::task::spawn_blocking(start).await.unwrap();
    let folder = site::fresh_folder(&servers).await;
    let url = format!("zookeeper://127.0.0.1:{}/{folder}?session=4s", servers.ports()[0]);
    assert_eq!(about(&findings(&url).await, "ensemble").verdict, Verdict::Fine);
    let all = format!("zookeeper://{}/{folder}?session=4s", servers.hosts());
    let found = findings(&all).await;
    let ensemble = about(&found, "ensemble");
    assert!(ensemble.verdict == Verdict::Fine && ensemble.says.matches("follower").count() == 2, "{found:?}");
    servers.kill(1);
    let gone = format!("127.0.0.1:{} does not tell", servers.ports()[1]);
    until("one of three does not tell, and the others serve", async || {
        let found = findings(&all).await;
        let ensemble = about(&found, "ensemble");
        let serve = found.iter().any(|finding| finding.about == "folder" && finding.verdict == Verdict::Fine);
        serve && ensemble.verdict == Verdict::Doubtful && ensemble.says.contains(&gone)
    })
    .await;
    servers.kill(2);
    until("the last server only reads", async || {
        let found = findings(&url).await;
        about(&found, "ensemble").says.contains("read-only")
    })
    .await;
    let found = findings(&url).await;
    let ensemble = about(&found, "ensemble");
    assert!(ensemble.verdict == Verdict::Doubtful && ensemble.says.contains("grants no locks"), "{found:?}");
    assert!(matches!(about(&found, "server").verdict, Verdict::Unfit(ErrorKind::Unavailable)), "{found:?}");
    let error = Client::connect(&url).await.unwrap_err();
    println!("{error}");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}
