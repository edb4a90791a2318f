//! A server that speaks TLS, wants a certificate of its clients, and lets a user do what locks need.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockkeeper::{Client, ErrorKind};

use crate::harness::{eyes, free_port, tell};
use crate::sentinels::{MASTER, Watched};
use crate::server::{Flavour, Server};
use lockkeeper_testkit::cluster::Cluster;

/// Certificates of an authority of our own, in a folder that goes with them.
#[derive(Debug)]
pub(crate) struct Proofs(PathBuf);

impl Proofs {
    /// Why there can be none here, if so.
    pub(crate) fn missing() -> Option<String> {
        let found = Command::new("openssl").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        (!found.is_ok_and(|status| status.success())).then(|| "openssl: it does not run; install it".to_owned())
    }

    pub(crate) fn make() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("lockkeeper-tls-{}-{number}", std::process::id()));
        make_proofs(&folder);
        Self(folder)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// What a server is told, beside its port for TLS.
    pub(crate) fn of_a_server(&self, port: &str) -> Vec<String> {
        let file = |name| self.at(name);
        let words = [("--tls-port", port.to_owned()), ("--tls-ca-cert-file", file("ca.pem"))];
        let proofs = [("--tls-cert-file", file("server.pem")), ("--tls-key-file", file("server.key"))];
        words.into_iter().chain(proofs).flat_map(|(word, what)| [word.to_owned(), what]).collect()
    }

    /// What stands in a client's URL.
    pub(crate) fn of_a_client(&self) -> String {
        format!("ca={}&cert={}&key={}", self.at("ca.pem"), self.at("client.pem"), self.at("client.key"))
    }
}

impl Drop for Proofs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Debug)]
pub(crate) struct TlsServer {
    _server: Server,
    port: u16,
    proofs: Proofs,
    last_database: AtomicU32,
}

/// Has a character that means something in a URL.
const PASSWORD: &str = "s@cret";

impl TlsServer {
    pub(crate) fn start() -> Self {
        let (proofs, port) = (Proofs::make(), free_port());
        let page = include_str!("../../../../docs/backends/redis.md");
        // The rule that the page tells, for all names.
        let rule = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER worker ")).expect("the page tells the rule");
        let rule = rule.replace("PASSWORD", PASSWORD).replace("~app:* ~{app:*}* ~redisson_* ~lockkeeper:*", "~*");
        let of_a_server = proofs.of_a_server(&port.to_string());
        let mut options: Vec<&str> = of_a_server.iter().map(String::as_str).collect();
        options.extend(["--requirepass", "another", "--user", "worker"]);
        options.extend(rule.split(' '));
        let server = Server::start_with(Flavour::Redis, &options);
        Self { _server: server, port, proofs, last_database: AtomicU32::new(0) }
    }

    /// A database that no other test uses.
    pub(crate) fn fresh_url(&self) -> String {
        let database = self.last_database.fetch_add(1, Ordering::Relaxed) % 2_000;
        self.url(&format!("{database}?{}", self.proofs.of_a_client()))
    }

    fn url(&self, rest: &str) -> String {
        format!("rediss://worker:{}@127.0.0.1:{}/{rest}", PASSWORD.replace('@', "%40"), self.port)
    }
}

/// An authority, and what it says of the server and of a client.
fn make_proofs(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let openssl = |words: &[&str]| {
        let done = Command::new("openssl").args(words).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(done.is_ok_and(|status| status.success()), "openssl {words:?}");
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    let (request, signed) = (["req"], ["req", "-x509"]);
    let subject = |name: &'static str| ["-subj", name];
    openssl(&[&signed[..], &key, &subject("/CN=lockkeeper tests"), &["-keyout", "ca.key", "-out", "ca.pem"]].concat());
    openssl(&[&signed[..], &key, &subject("/CN=somebody else"), &["-keyout", "other.key", "-out", "other.pem"]].concat());
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    for who in ["server", "client"] {
        let (private, asking, proof) = (format!("{who}.key"), format!("{who}.csr"), format!("{who}.pem"));
        openssl(&[&request[..], &key, &subject("/CN=one of us"), &["-keyout", &private, "-out", &asking]].concat());
        let sign = ["x509", "-req", "-in", &asking, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"];
        openssl(&[&sign[..], &["-extfile", "names", "-out", &proof]].concat());
    }
}

fn words(options: &str) -> Vec<String> {
    options.split(' ').map(str::to_owned).collect()
}

fn skipped(test: &str) -> bool {
    let why = Proofs::missing().or_else(|| Server::missing(Flavour::Redis));
    if let Some(why) = &why {
        lockkeeper::conformance::skip(test, why);
    }
    why.is_some()
}

/// A lock, one that waits for it, and several at once.
async fn serves(client: &Client, names: [&str; 3]) {
    let wait = Duration::from_secs(20);
    let held = client.mutex(names[0]).lock().timeout(wait).await.unwrap();
    let waiter = client.mutex(names[0]);
    let waiter = tokio::spawn(async move { waiter.lock().timeout(wait).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    held.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    client.multi_lock(names).lock().timeout(wait).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_their_servers_behind_tls_are_followed() {
    if skipped("TLS to sentinels") {
        return;
    }
    let watched = tokio::task::spawn_blocking(|| Watched::start_with(Flavour::Redis, Some(Proofs::make()))).await.unwrap();
    let client = Client::connect(watched.url(0)).await.unwrap();
    serves(&client, ["a", "b", "c"]).await;
    let before = watched.master().expect("a master");
    tell::<()>(&mut eyes(watched.sentinels[0].port), &format!("SENTINEL FAILOVER {MASTER}")).unwrap();
    let began = Instant::now();
    while watched.master().is_none_or(|master| master == before) {
        assert!(began.elapsed() < Duration::from_secs(30), "no failover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    serves(&client, ["a", "b", "c"]).await;
    let error = Client::connect(watched.url(0).replace("rediss+", "redis+").split('?').next().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "without TLS nobody is reached: {error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_behind_tls_serves_all_its_slots() {
    if skipped("TLS to a cluster") {
        return;
    }
    let (cluster, proofs) = tokio::task::spawn_blocking(|| {
        let proofs = Proofs::make();
        let more = || [proofs.of_a_server(&free_port().to_string()), words("--tls-cluster yes --tls-replication yes")].concat();
        (Cluster::start_with(Flavour::Redis, more), proofs)
    })
    .await
    .unwrap();
    let url = format!("rediss+cluster://{}?{}", cluster.hosts(), proofs.of_a_client());
    let client = Client::connect(url).await.unwrap();
    // One in each part: slots 15495, 3300 and 7365.
    for names in [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]] {
        serves(&client, names).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_proofs_nobody_gets_in_and_no_secret_is_told() {
    if skipped("TLS") {
        return;
    }
    let server = TlsServer::start();
    Client::connect(server.fresh_url()).await.unwrap().mutex("m").lock().await.unwrap().release().await.unwrap();
    let at = |name: &str| server.proofs.at(name);
    let proof = format!("cert={}&key={}", at("client.pem"), at("client.key"));
    let anybody = format!("0?insecure=accept-any-certificate&{proof}");
    Client::connect(server.url(&anybody)).await.expect("spelled out");
    for (why, url, kind) in [
        ("no certificate of ours", server.url(&format!("0?ca={}", at("ca.pem"))), ErrorKind::Unavailable),
        ("an authority of somebody else", server.url(&format!("0?ca={}&{proof}", at("other.pem"))), ErrorKind::Unavailable),
        ("the machine's authorities", server.url(&format!("0?{proof}")), ErrorKind::Unavailable),
        ("no such file", server.url(&format!("0?ca={}", at("none.pem"))), ErrorKind::Config),
        ("a wrong password", server.fresh_url().replace("s%40cret", "wrong"), ErrorKind::Denied),
        ("not spelled out", server.url(&format!("0?insecure=yes&{proof}")), ErrorKind::Config),
        ("no TLS at all", server.url("0").replace("rediss", "redis"), ErrorKind::Unavailable),
    ] {
        let error = Client::connect(&url).await.expect_err(why);
        assert_eq!(error.kind(), kind, "{why}: {error:?}");
        assert!(!format!("{error} {error:?}").contains("cret"), "{why}: {error:?}");
    }
}

/// What is wrong with a certificate is told, with what to do about it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_refused_is_told_with_its_cause() {
    if skipped("TLS certificates") {
        return;
    }
    let proofs = Proofs::make();
    let folder = proofs.0.clone();
    let openssl = |words: &[&str]| {
        let done = Command::new("openssl").args(words).current_dir(&folder).output().unwrap();
        assert!(done.status.success(), "openssl {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    std::fs::write(folder.join("elsewhere"), "subjectAltName=DNS:elsewhere.example\n").unwrap();
    let sign = |days: &str, names: &str, out: &str| {
        let words = ["x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        openssl(&[&words[..], &["-days", days, "-extfile", names, "-out", out]].concat());
    };
    sign("-1", "names", "expired.pem");
    sign("2", "elsewhere", "elsewhere.pem");
    let own = ["req", "-x509", "-key", "server.key", "-subj", "/CN=me", "-days", "2", "-addext", "subjectAltName=IP:127.0.0.1"];
    openssl(&[&own[..], &["-out", "own.pem"]].concat());
    for (certificate, authority, words) in [
        ("server.pem", Some("other.pem"), "not issued by the authority in ca="),
        ("server.pem", None, "?ca=FILE"),
        ("expired.pem", Some("ca.pem"), "has expired"),
        ("elsewhere.pem", Some("ca.pem"), "is for another name"),
        ("own.pem", Some("own.pem"), "self-signed"),
    ] {
        let (port, at) = (free_port(), |name: &str| proofs.at(name));
        let (listen, key) = (port.to_string(), at("server.key"));
        let (ca, shown) = (at("ca.pem"), at(certificate));
        let options = ["--tls-port", &listen, "--tls-ca-cert-file", &ca, "--tls-cert-file", &shown, "--tls-key-file", &key];
        let _server = Server::start_with(Flavour::Redis, &[&options[..], &["--tls-auth-clients", "no"]].concat());
        let trusted = authority.map(|name| format!("?ca={}", at(name))).unwrap_or_default();
        let error = Client::connect(format!("rediss://127.0.0.1:{port}{trusted}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{certificate}: {error:?}");
        assert!(error.to_string().contains(words), "{certificate}: {error:?}");
    }
}
