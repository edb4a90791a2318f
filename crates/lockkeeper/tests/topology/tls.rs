//! A server that speaks TLS, wants a certificate of its clients, and lets a user do what locks need.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use lockkeeper::{Client, ErrorKind};

use crate::server::{Flavour, Server};

#[derive(Debug)]
pub(crate) struct TlsServer {
    _server: Server,
    port: u16,
    proofs: PathBuf,
    last_database: AtomicU32,
}

/// Has a character that means something in a URL.
const PASSWORD: &str = "s@cret";

impl TlsServer {
    /// Why there can be no proofs here, if so.
    pub(crate) fn missing() -> Option<String> {
        let found = Command::new("openssl").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        (!found.is_ok_and(|status| status.success())).then(|| "openssl: it does not run; install it".to_owned())
    }

    pub(crate) fn start() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let proofs = std::env::temp_dir().join(format!("lockkeeper-tls-{}-{number}", std::process::id()));
        make_proofs(&proofs);
        let file = |name: &str| proofs.join(name).display().to_string();
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap().port();
        let page = include_str!("../../../../docs/backends/redis.md");
        // The rule that the page tells, for all names.
        let rule = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER worker ")).expect("the page tells the rule");
        let rule = rule.replace("PASSWORD", PASSWORD).replace("~app:* ~{app:*}* ~redisson_* ~lockkeeper:*", "~*");
        let (tls_port, ca, certificate, key) = (port.to_string(), file("ca.pem"), file("server.pem"), file("server.key"));
        let mut options = vec!["--tls-port", &tls_port, "--tls-ca-cert-file", &ca, "--tls-cert-file", &certificate];
        options.extend(["--tls-key-file", &key, "--requirepass", "another", "--user", "worker"]);
        options.extend(rule.split(' '));
        let server = Server::start_with(Flavour::Redis, &options);
        Self { _server: server, port, proofs, last_database: AtomicU32::new(0) }
    }

    /// A database that no other test uses.
    pub(crate) fn fresh_url(&self) -> String {
        let database = self.last_database.fetch_add(1, Ordering::Relaxed) % 2_000;
        let at = |name: &str| self.proofs.join(name).display().to_string();
        self.url(&format!("{database}?ca={}&cert={}&key={}", at("ca.pem"), at("client.pem"), at("client.key")))
    }

    fn url(&self, rest: &str) -> String {
        format!("rediss://worker:{}@127.0.0.1:{}/{rest}", PASSWORD.replace('@', "%40"), self.port)
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.proofs);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_proofs_nobody_gets_in_and_no_secret_is_told() {
    if let Some(why) = TlsServer::missing().or_else(|| Server::missing(Flavour::Redis)) {
        lockkeeper::conformance::skip("TLS", &why);
        return;
    }
    let server = TlsServer::start();
    Client::connect(server.fresh_url()).await.unwrap().mutex("m").lock().await.unwrap().release().await.unwrap();
    let at = |name: &str| server.proofs.join(name).display().to_string();
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
